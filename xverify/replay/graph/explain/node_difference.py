"""Says in words how a node of one graph differs from the node of another graph at the same place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any

import numpy as np
import onnx

from ....weights.origins import share
from ..model import Body, Node
from ..source import source
from ..values import Named
from .names import common_attribute, plain
from .structure import merged_pad, permuted_gates

NORM = "BatchNormalization"
SMALL = 8  # values of a constant that a sentence shows
OF_ONE_MODE = ("nearest_mode", "cubic_coeff_a")  # attributes of Resize that mean something in one mode only
NAMES = {  # operator -> what its inputs are called
    "Conv": ("x", "weight", "bias"),
    "ConvTranspose": ("x", "weight", "bias"),
    "Gemm": ("a", "b", "bias"),
    "Clip": ("x", "min", "max"),
    "Resize": ("x", "roi", "scales", "sizes"),
    "Gather": ("data", "indices"),
    "Slice": ("data", "starts", "ends", "axes", "steps"),
    "QuantizeLinear": ("x", "scale", "zero point"),
    "DequantizeLinear": ("x", "scale", "zero point"),
    "BatchNormalization": ("x", "scale", "bias", "mean", "variance"),
    "GatherBlockQuantized": ("table", "indices", "scale", "zero point"),
    "MatMulBnb4": ("x", "weight", "scale"),
    "MatMulNBits": ("x", "weight", "scale", "zero point", "order of the groups", "bias"),
}


@dataclass(frozen=True)
class Neighbours:
    """A node, the nodes that use its outputs, and the constants of its graph."""

    node: Node
    after: tuple[Node, ...]
    constants: Mapping[str, Any]


def described(node: Node) -> str:
    """A node as a message names it, with its module and line of source code where the file says them."""
    origin = source(node)
    more = [f"module {origin.module}"] if origin.module else []
    more += [origin.line] if origin.line else []
    return f"{node.op} {node.name!r}" + (f" ({', '.join(more)})" if more else "")


def between(own: Neighbours, others: Sequence[Neighbours], at_end: bool) -> str:
    """How a node differs from what the reference computes of the same values, as a clause.

    others: the nodes of the reference that take the same values. at_end: whether the file goes on behind the reference's output.
    """
    if at_end:
        return "the reference does not compute it, its output comes before"
    if not others:
        return "the reference computes nothing like it from the same values"
    same = [other for other in others if plain(other.node.op) == plain(own.node.op)]
    folded = [other for other in same if _has_norm(other) != _has_norm(own)]
    if folded:
        norm = next(node for each in (own, folded[0]) for node in each.after if node.op == NORM)
        where = "file" if _has_norm(own) else "reference"
        return f"it differs although a batch norm may be folded into it: the {where} has {described(norm)} behind it"
    if same:
        best = min((list(differences(own, other)) for other in same), key=len)
        if best:
            return "; ".join(best)
        # The reference computes something of the same values that its own node is given beside them.
        rest = [other for other in others if any(each.node in other.after for each in same)]
        if rest:
            return _left_out(rest[0])
        return f"the reference's {described(same[0].node)} gets the same and gives other values"
    other = others[0]
    if any(plain(node.op) == plain(own.node.op) for node in other.after):
        merged = merged_pad(own.node, other.node, other.after, other.constants)
        return merged or _left_out(other)
    if any(plain(node.op) == plain(other.node.op) for node in own.after):
        return f"the reference does not have this node{_values(own)} before its {described(other.node)}"
    return (
        f"the file computes {own.node.op}{_values(own)} where the reference has {described(other.node)}{_values(other)}"
    )


def _left_out(other: Neighbours) -> str:
    """The clause on a node of the reference that the file does not have."""
    return f"the file leaves out the reference's {described(other.node)}{_constants(other)}, which comes before it"


def _has_norm(neighbours: Neighbours) -> bool:
    return any(node.op == NORM for node in neighbours.after)


def differences(own: Neighbours, other: Neighbours) -> Iterator[str]:
    """Clauses on attributes and constants of two nodes with one operator."""
    mine, theirs = _attributes(own.node), _attributes(other.node)
    if own.node.op != other.node.op:  # of two formats
        yield from _common_differences(mine, theirs)
        return
    if mine.get("mode") != theirs.get("mode"):
        for name in OF_ONE_MODE:
            mine.pop(name, None)
            theirs.pop(name, None)
    for name in sorted(mine.keys() | theirs.keys()):
        if _text(mine.get(name)) != _text(theirs.get(name)):
            yield f"{name} is {_text(mine.get(name))}, and the reference has {_text(theirs.get(name))}"
    gates = permuted_gates(own.node, other.node, own.constants, other.constants)
    if gates:
        yield gates
        return
    counts = [sum(bool(name) for name in each.node.inputs) for each in (own, other)]
    if counts[0] < counts[1]:
        left = [name for name in other.node.inputs if name][counts[0] :]
        yield f"it lacks the {_input(own.node, counts[0])}, which is {', '.join(left)} in the reference"
    for index, names in enumerate(zip(own.node.inputs, other.node.inputs)):
        array, right = (each.constants.get(name) for each, name in zip((own, other), names))
        if array is not None and right is not None and not np.array_equal(array, right):
            yield f"its {_input(own.node, index)} {names[0]}{_apart(array, right)}"


def _common_differences(mine: Named, theirs: Named) -> Iterator[str]:
    """Clauses on the attributes that mean the same in the formats of both nodes."""
    common = {common_attribute(name): value for name, value in theirs.items() if common_attribute(name)}
    for name, value in mine.items():
        right = common.get(common_attribute(name))
        if right is not None and _number(value) != _number(right):
            yield f"{name} is {_text(value)}, and the reference has {_text(right)}"


def _number(value: Any) -> float | str:
    """A value as a number, where it is one."""
    text = {"False": "0", "True": "1"}.get(_text(value), _text(value))
    try:
        return float(f"{float(text):.6g}")
    except ValueError:
        return text


def _trimmed(array: Any) -> tuple[int, ...]:
    """The shape without the ones at its beginning, which change nothing in a sum of arrays."""
    return tuple(dropwhile(lambda size: size == 1, array.shape))


def _apart(mine: Any, theirs: Any) -> str:
    if mine.size <= SMALL and theirs.size <= SMALL:
        return f" is {_text(mine)}, and the reference has {_text(theirs)}"
    if mine.size == theirs.size and _trimmed(mine) == _trimmed(theirs):
        theirs = theirs.reshape(mine.shape)
    if mine.shape != theirs.shape:
        return f" has the shape {mine.shape}, and the reference's {theirs.shape}"
    if mine.dtype.kind in "iu":
        place = tuple(map(int, np.argwhere(mine != theirs)[0]))
        count = f" differs in {int(np.sum(mine != theirs))} of {mine.size} stored numbers"
        return f"{count}: {list(place)} is {mine[place]}, and the reference has {theirs[place]}"
    size = float(np.sqrt(np.mean(np.square(theirs, dtype=np.float64))))
    away = float(np.sqrt(np.mean(np.square(mine.astype(np.float64) - theirs))))
    return f" is {share(away / size)} (rms) away from the reference's" if size else " is not 0, as the reference's"


def _attributes(node: Node) -> Named:
    """The attributes of a node that are no subgraphs, with the defaults of its operator."""
    found: Named = {}
    try:
        schema = onnx.defs.get_schema(node.op, node.version, node.domain)
    except onnx.defs.SchemaError:
        schema = None
    for name, attribute in (schema.attributes if schema else {}).items():
        if attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            found[name] = onnx.helper.get_attribute_value(attribute.default_value)
    found.update({name: value for name, value in node.attributes.items() if not isinstance(value, Body)})
    # The size of a kernel follows from the weight, and what changes nothing may be written or left out.
    idle = {"pads": {0}, "strides": {1}, "dilations": {1}}
    return {
        name: value for name, value in found.items() if name != "kernel_shape" and not _is_idle(value, idle.get(name))
    }


def _is_idle(value: Any, neutral: set[int] | None) -> bool:
    return neutral is not None and set(value) <= neutral


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return _text(value.tolist() if value.size <= SMALL else f"an array of shape {value.shape}")
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_text, value)) + "]"
    return "not set" if value is None else str(value)


def _input(node: Node, index: int) -> str:
    names = NAMES.get(node.op, ())
    return names[index] if index < len(names) else f"input {index}"


def _constants(neighbours: Neighbours) -> str:
    """The names of the constants of a node, such as those of a bias that is added."""
    names = [name for name in neighbours.node.inputs if name in neighbours.constants]
    return f" of {', '.join(names)}" if names else ""


def _values(neighbours: Neighbours) -> str:
    """The small constants of a node, with what they are."""
    found = [
        f"{_input(neighbours.node, index)} {_text(array)}"
        for index, name in enumerate(neighbours.node.inputs)
        if (array := neighbours.constants.get(name)) is not None and array.size <= 1
    ]
    return f" with {', '.join(found)}" if found else ""
