"""Finds the first node whose values are beyond the largest number of the type that the file declares for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..describe import Types
from ..model import Graph, Node
from ..values import INFINITE, LARGEST, Value, is_float

NARROW = np.dtype(np.float16)


class Overflow:
    """Looks at every node of an evaluation. says: what the first one that overflows float16 does; "" while there is none."""

    def __init__(self, graph: Graph) -> None:
        self.narrow = {name for name, dtype in Types(graph).dtypes.items() if dtype == NARROW.name}
        self.says = ""

    def visit(self, node: Node, inputs: Sequence[Value | None], outputs: Sequence[Value]) -> None:
        """Look at one node with its values."""
        for name, value in zip(node.outputs, outputs):
            if self.says or name not in self.narrow or not is_float(value.exact) or not value.exact.size:
                continue
            size = np.abs(np.where(np.isfinite(value.exact), value.exact, 0.0))
            beyond = int(np.count_nonzero(size >= INFINITE[NARROW]))
            if beyond:
                self.says = (
                    f"{node.name} ({node.kind}) overflows float16, which ends at {LARGEST[NARROW]:g}: {beyond} of its {size.size} "
                    f"values are larger, up to {size.max():.3g}"
                )
