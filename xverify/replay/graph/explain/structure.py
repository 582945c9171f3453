"""Differences between two graphs that their structure tells: gates, merged pads, and settings where all nodes are the same."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..model import Body, Node
from .names import plain

# Operator -> the gates of its weights, in the order of ONNX.
GATES = {"LSTM": ("input", "output", "forget", "cell"), "GRU": ("update", "reset", "hidden")}
WEIGHTS = (1, 2)  # the inputs of a recurrent operator whose gates lie along axis 1
PADS = ("pads", "pads_begin", "pads_end", "padding")
FEW = 3  # nodes with other settings that a sentence names


def permuted_gates(own: Node, other: Node, mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> str:
    """A clause on the order of the gates in the weights of a recurrent node; "" where no other order gives the reference's.

    mine, theirs: the constants of both graphs.
    """
    gates = GATES.get(own.op)
    if gates is None or own.op != other.op:
        return ""
    pairs = [(mine.get(own.input(place)), theirs.get(other.input(place))) for place in WEIGHTS]
    known = [(one, two) for one, two in pairs if one is not None and two is not None and one.shape == two.shape]
    if len(known) < len(pairs) or any(one.shape[1] % len(gates) for one, _ in known):
        return ""
    for order in itertools.permutations(range(len(gates))):
        if order != tuple(range(len(gates))) and all(np.array_equal(one, _ordered(two, order)) for one, two in known):
            names = ", ".join(gates[place] for place in order)
            return f"the gates of its weights are in the order {names}, and the reference has {', '.join(gates)}"
    return ""


def _ordered(weight: Any, order: Sequence[int]) -> Any:
    blocks = np.split(weight, len(order), axis=1)
    return np.concatenate([blocks[place] for place in order], axis=1)


def merged_pad(own: Node, pad: Node, after: Sequence[Node], constants: Mapping[str, Any]) -> str:
    """A clause on a pad of the reference that the file has as a setting of the node behind it; "" where it is no such pad.

    after: the nodes behind the pad. constants: of the reference.
    """
    kept = next((node for node in after if plain(node.op) == plain(own.op)), None)
    if plain(pad.op) != "pad" or kept is None:
        return ""
    mine, theirs = (next((node.get(name) for name in PADS if node.get(name) is not None), None) for node in (own, kept))
    if mine is None or _list(mine) == _list(theirs):
        return ""
    amounts = next((constants[name].tolist() for name in pad.inputs[1:] if name in constants), pad.get("pads"))
    mode = pad.get("mode", "constant")
    if amounts is None and mode == "constant":  # the format does not tell them, so both may pad alike
        return f"it has the place of the reference's {pad.op} {pad.name!r} and {kept.op} {kept.name!r}, and gives other values"
    return (
        f"it pads by {_list(mine)} itself, with zeros, and the reference has {pad.op} {pad.name!r} before it, of mode {mode} "
        f"by {_list(amounts)}"
    )


def _list(values: Any) -> str:
    return str(values) if isinstance(values, str) or values is None else str(list(values))


def changed_settings(
    file: Body, reference: Body, differences: Callable[[Node, Node], Iterator[str]], named: Callable[[Node], str]
) -> str:
    """A sentence on the nodes whose settings differ where both graphs have the same operators in the same order; "" elsewhere.

    differences: clauses on two nodes. named: a node as a message names it.
    """
    if [node.op for node in file.nodes] != [node.op for node in reference.nodes]:
        return ""
    found = []
    for mine, theirs in zip(file.nodes, reference.nodes):
        clauses = list(differences(mine, theirs))
        if clauses:
            found.append(f"{named(mine)}: {'; '.join(clauses)}")
    if not 0 < len(found) <= FEW:
        return ""
    return f"both files have the same operators, and differ in {' and in '.join(found)}"
