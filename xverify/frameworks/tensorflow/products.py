"""The precision of the matrix products and convolutions that TensorFlow computes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

PRODUCTS = re.compile("MatMul|Conv|Einsum")  # types of operations: MatMul, BatchMatMulV2, Conv2DBackpropInput


@contextmanager
def watched_products() -> Iterator[dict[str, int]]:
    """Precision -> number of the products within the context, those of functions that are traced in it among them."""
    from tensorflow.python.framework import op_callbacks  # no other interface shows the operations of a gradient

    found = Counter[str]()

    def note(op_type: Any, _inputs: Any, _attributes: Any, outputs: Sequence[Any], *_: Any, **_named: Any) -> None:
        name = op_type.decode() if isinstance(op_type, bytes) else op_type
        if outputs and PRODUCTS.search(name):
            found[outputs[0].dtype.name] += 1

    op_callbacks.add_op_callback(note)
    try:
        yield found
    finally:
        op_callbacks.remove_op_callback(note)
