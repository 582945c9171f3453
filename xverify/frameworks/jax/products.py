"""The precision of the matrix products and convolutions that JAX computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import jax
from jax.extend.core.primitives import conv_general_dilated_p, dot_general_p

from xverify.framework.generators import replaced


@contextmanager
def watched_products() -> Iterator[dict[str, int]]:
    """Precision -> number of the products within the context, by the lower precision of the two operands.

    Nothing is compiled in the context, so that every product is computed of values, and none is left out that was compiled before.
    """
    found = Counter[str]()

    def noting(bind: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*operands: Any, **settings: Any) -> Any:
            # A product of tracers is computed of values, too: by the rule for its derivative or for a batch of it.
            if not any(isinstance(each, jax.core.Tracer) for each in operands):
                found[min((each.dtype for each in operands), key=lambda dtype: dtype.itemsize).name] += 1
            return bind(*operands, **settings)

        return noted

    with ExitStack() as changes:
        for primitive in (dot_general_p, conv_general_dilated_p):
            changes.enter_context(replaced(primitive, "bind", noting(primitive.bind)))
        changes.enter_context(jax.disable_jit())
        yield found
