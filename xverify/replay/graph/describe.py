"""What an ONNX graph tells about itself: the ids that its tables hold, and the precision in which it computes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from ...results.precision import LayerPrecision, Precision, from_dtypes, from_layers
from . import kinds
from .layers import PARAMETERS, WEIGHTS, WHOLE, WHOLE_SUMS
from .model import Graph, Node
from .operators.few_bits import FEW_BITS
from .operators.rest import RANDOM
from .operators.shape import cast_type
from .values import UNITS, dtype_name, element_type

# Operators that select from a table -> their attribute for the axis.
TABLES = {"Gather": "axis", "GatherBlockQuantized": "gather_axis"}
# Operators through which ids pass unchanged on their way to a table.
PASSES = frozenset(
    {"Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity", "Transpose", "Slice", "Concat", "Expand"}
)
# Operators behind which the values have the same steps or none, in a search for where the inputs of a layer were quantised.
UNCHANGED = frozenset({"Relu", "Clip", "MaxPool", "GlobalMaxPool", "Pad", "Dropout"})


def vocabulary(graph: Graph) -> dict[str, int]:
    """Input -> number of rows of the smallest table that it selects from."""
    origins = {name: {name} for name in graph.inputs}
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op in TABLES and len(node.inputs) >= 2 and node.inputs[0] in graph.constants:
            rows = int(graph.constants[node.inputs[0]].shape[node.get(TABLES[node.op], 0)])
            for name in origins.get(node.inputs[1], ()):
                found[name] = min(rows, found.get(name, rows))
        if node.op in PASSES:
            joined = set().union(*(origins.get(name, set()) for name in node.inputs))
            origins.update({name: joined for name in node.outputs if joined})
    return found


def random(graph: Graph) -> Iterator[str]:
    """The nodes that draw random numbers, those of subgraphs and functions included, each with its operator."""
    for body, node in graph.walk():
        training = node.inputs[2] if node.op == "Dropout" and len(node.inputs) > 2 else ""
        if node.op in RANDOM or (training and bool(np.all(body.constants.get(training, True)))):
            yield f"{node.name} ({node.op})"


def ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """Input -> the smallest and the largest number that it may hold, where only quantisers with one constant scale take it."""
    found = {}
    for name in graph.inputs:
        ends = list(_ranges(graph, name))
        known = [each for each in ends if each is not None]
        if known and len(known) == len(ends):
            found[name] = max(low for low, _ in known), min(high for _, high in known)
    return found


def widths(graph: Graph) -> dict[str, int]:
    """Input of a cache, (N, heads, T, H) -> H where the file leaves it open and what is put behind the cache tells it."""
    found = {}
    for name in graph.inputs:
        shape = graph.taken.get(name, ())
        if len(shape) == 4 and isinstance(shape[1], int) and not isinstance(shape[3], int):
            sizes = [_head_size(graph, user, name, shape[1]) for user in graph.users.get(name, ())]
            found[name] = max(sizes, default=0)
    return {name: size for name, size in found.items() if size}


def _head_size(graph: Graph, node: Node, name: str, heads: int) -> int:
    """The size of a head of the keys or values that a node puts behind a cache; 0 where it is not known. name: of the cache."""
    beside = {"Concat": node.inputs[1:], "GroupQueryAttention": node.inputs[:2], "MultiHeadAttention": node.inputs[1:2]}
    new = next((each for each in reversed(beside.get(node.op, ())) if each and each != name), "")
    if node.op == "GroupQueryAttention" and not node.input(1):
        heads = node.get("num_heads") + 2 * heads
    line = graph.line(graph.makers.get(new)) if new else ()
    product = next((each for each in line if each.op in WEIGHTS), None)
    weight = None if product is None else graph.constants.get(product.input(1))
    if product is None or weight is None:
        return 0
    return int(product.get("N") or weight.shape[-1]) // heads


def _ranges(graph: Graph, name: str) -> Iterator[tuple[float, float] | None]:
    """The range of each quantiser that takes a value; None for another node."""
    for user in graph.users.get(name, ()):
        if user.op in ("Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose"):
            yield from _ranges(graph, user.outputs[0])
        elif user.op not in ("Shape", "Size"):
            yield span(graph, user) if user.op == "QuantizeLinear" and user.inputs[0] == name else None


def span(graph: Graph, quantiser: Node) -> tuple[float, float] | None:
    """The numbers that the ends of the range of a quantiser stand for; None where its scale is no single constant."""
    scale, zero = (graph.constants.get(quantiser.input(place)) for place in PARAMETERS[quantiser.op])
    if scale is None or scale.size != 1 or (zero is None and quantiser.input(PARAMETERS[quantiser.op][1])):
        return None
    kind = np.dtype(np.uint8) if zero is None else zero.dtype
    if kind.kind not in "iu":
        return None
    limits, step = np.iinfo(kind), float(np.reshape(scale, ()))
    offset = 0.0 if zero is None else float(np.reshape(zero, ()))
    return (limits.min - offset) * step, (limits.max - offset) * step


@dataclass(frozen=True)
class Stored:
    """The weights of a layer as the file stores them.

    name: of the constant. scale: name of its scale; "" for none.
    quantised: whether they are whole numbers with a scale, or become so in the graph.
    """

    name: str
    dtype: str
    quantised: bool = False
    scale: str = ""


class Types:
    """The declared type of every value of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dtypes: dict[str, str] = {name: dtype_name(array.dtype) for name, array in graph.constants.items()}
        for name, kind in graph.types.items():
            if kind.HasField("tensor_type"):
                self.dtypes[name] = _element(kind.tensor_type.elem_type)
        for node in graph.nodes:
            self.dtypes.update(dict(zip(node.outputs, self._outputs(node))))

    def _outputs(self, node: Node) -> Iterator[str]:
        """The types of the outputs of a node."""
        given = [self.dtypes.get(name, "") for name in node.inputs if name]
        if node.op == "DynamicQuantizeLinear":
            yield from ("uint8", "float32", "uint8")
            return
        if node.op == "Cast":
            to = cast_type(node)
            kind = "" if to is None else dtype_name(to)
        elif node.op in PARAMETERS:
            zero = PARAMETERS[node.op][1]
            kind = self.dtypes.get(node.inputs[zero], "") if node.input(zero) else "uint8"
            kind = "float32" if node.op == "QGemm" and not node.input(zero) else kind
        elif node.op == "DequantizeLinear":
            kind = given[1]
        elif node.op in WHOLE_SUMS:
            kind = "int32"
        else:
            kind = next((each for each in given if "float" in each), given[0] if given else "")
        for _ in node.outputs:
            yield kind

    def weights(self, node: Node) -> tuple[int, Stored] | None:
        """Which input of a layer holds its weights, and how they are stored; None for a product of computed values."""
        for place in WEIGHTS.get(node.op, ()):
            stored = self._stored(node.input(place))
            if stored is not None and node.op in WHOLE:
                stored = Stored(stored.name, stored.dtype, True, node.input(WHOLE[node.op]))
            if stored is not None:
                return place, stored
        return None

    def _stored(self, name: str) -> Stored | None:
        if name in self.graph.constants:
            array = self.graph.constants[name]
            return Stored(name, dtype_name(array.dtype)) if array.ndim else None
        node = self.graph.makers.get(name)
        if node is None or not node.inputs:
            return None
        inner = self._stored(node.inputs[0])
        if inner is None:
            return None
        if node.op in ("DequantizeLinear", "QuantizeLinear"):
            dtype = self.dtypes[name] if node.op == "QuantizeLinear" else inner.dtype
            return Stored(inner.name, dtype, True, node.input(1))
        return inner if node.op == "Cast" or (kinds.copies(node) and len(node.inputs) <= 2) else None

    def quantised_input(self, node: Node, weights: int) -> tuple[str, str]:
        """(dtype, "static" or "dynamic") of the quantised input of a layer; ("", "") when it is not quantised.

        weights: which input holds the weights.
        """
        if node.op == "DynamicQuantizeMatMul":
            return "uint8", "dynamic"
        places = {"QLinearMatMul": (0, 3), "QLinearConv": (0,), "QGemm": (0,)}.get(node.op, (0, 1))
        name = next((node.input(place) for place in places if place != weights and node.input(place)), "")
        maker = self._origin(name)
        if node.op in FEW_BITS:
            return "", ""
        if node.op in WHOLE:
            dynamic = maker is not None and maker.op == "DynamicQuantizeLinear"
            return self.dtypes.get(name, ""), "dynamic" if dynamic else "static"
        if maker is None or maker.op != "DequantizeLinear":
            return "", ""
        return self.dtypes.get(maker.inputs[0], ""), "static" if maker.inputs[1] in self.graph.constants else "dynamic"

    def _origin(self, name: str) -> Node | None:
        """The node that made a value, behind operators that copy it."""
        for node in self.graph.line(self.graph.makers.get(name)):
            if not node.inputs or node.op == "Cast" or not (kinds.copies(node) or node.op in UNCHANGED):
                return node
        return None

    def layer(self, node: Node) -> LayerPrecision | None:
        """The precision of a node that sums products with weights; None for any other node."""
        found = self.weights(node)
        if found is None:
            return None
        place, stored = found
        dtype = f"int{node.get('bits', 4)}" if node.op in FEW_BITS else stored.dtype
        activations, scheme = self.quantised_input(node, place)
        result = self.dtypes.get(node.outputs[0], "")
        computed = result if "float" in result else ""
        return LayerPrecision(dtype, stored.quantised, self._granularity(node, stored), activations, scheme, computed)

    def _granularity(self, node: Node, stored: Stored) -> str:
        if not stored.quantised:
            return ""
        if node.op in FEW_BITS:
            return "per block"
        scale = self.graph.constants.get(stored.scale)
        if scale is None and node.op in WHOLE_SUMS:
            scale = self.factor(node)
        if scale is None:
            return ""
        if scale.size == 1:
            return "per tensor"
        return "per block" if _grid(scale) else "per channel"

    def factor(self, node: Node) -> Any:
        """The constant by which a later node multiplies the whole numbers of this one; None when there is none."""
        names = {node.outputs[0]}
        scales = set()
        for other in self.graph.nodes:
            if other.op == "Cast" and other.inputs[0] in names:
                names.add(other.outputs[0])
            elif other.op == "Mul" and names & set(other.inputs):
                scales.update(set(other.inputs) - names)
        for name in scales:
            for given in (name, *(self.graph.makers[name].inputs if name in self.graph.makers else ())):
                if given in self.graph.constants:
                    return self.graph.constants[given]
        return None


def precision(graph: Graph) -> Precision:
    """The precision of the weights and of the arithmetic of a graph."""
    types = Types(graph)
    layers = [layer for layer in map(types.layer, graph.nodes) if layer is not None]
    layers += [
        LayerPrecision(f"int{node.get('bits', 4)}", True, "per block", "", "", types.dtypes.get(node.outputs[0], ""))
        for node in graph.nodes
        if node.op == "GatherBlockQuantized"
    ]
    if layers:
        return from_layers(layers)
    results = Counter(
        types.dtypes.get(name, "") for node in graph.nodes if not kinds.copies(node) for name in node.outputs
    )
    floats = {name: count for name, count in results.items() if "float" in name}
    computed = max(floats, key=lambda name: floats[name], default="")
    sizes: Counter[str] = Counter()
    for array in graph.constants.values():
        if array.dtype in UNITS and array.ndim:
            sizes[dtype_name(array.dtype)] += array.size
    return from_dtypes(sizes, computed)


def _element(number: int) -> str:
    try:
        return "bfloat16" if number == TensorProto.BFLOAT16 else str(element_type(number).name)
    except (KeyError, TypeError):
        return ""


def _grid(scale: Any) -> bool:
    """Whether a scale has more than one value along more than one axis."""
    return sum(size > 1 for size in scale.shape) > 1
