"""Finds the operators of torch that draw random numbers in the graph of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

SWITCHES = ("train", "training", "dropout_p")  # arguments; an operator draws nothing when one of them is 0 or False


def of_program(module: Any) -> Iterator[str]:
    """The operators of an exported program, each with the name of its node. module: torch.fx's, with its parts."""
    for part in module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            if isinstance(node.target, torch._ops.OpOverload) and _draws(node.target, node.args, node.kwargs):
                yield f"{node.name} ({node.target.name().partition('::')[2]})"


def of_graph(block: Any) -> Iterator[str]:
    """The operators of a block of a TorchScript graph and of the blocks inside."""
    for node in block.nodes():
        for inner in node.blocks():
            yield from of_graph(inner)
        space, _, name = node.kind().partition("::")
        packet = getattr(torch.ops.aten, name, None) if space == "aten" else None
        overload = getattr(packet, _overload(node), None)
        if isinstance(overload, torch._ops.OpOverload) and _draws(
            overload, [_value(each) for each in node.inputs()], {}
        ):
            yield name


def _overload(node: Any) -> str:
    """The name of the overload that a node of TorchScript calls."""
    head = node.schema().partition("(")[0] if "no schema" not in node.schema() else ""
    return head.partition("::")[2].partition(".")[2] or "default"


def _value(value: Any) -> Any:
    """The number that a value of a graph is; the value itself where it is no constant number."""
    node = value.node()
    return value.toIValue() if node.kind() == "prim::Constant" else value


def _draws(overload: Any, args: Any, kwargs: Any) -> bool:
    """Whether a call of this operator draws random numbers."""
    if torch.Tag.nondeterministic_seeded not in overload.tags:
        return False
    names = [argument.name for argument in overload._schema.arguments]
    defaults = {each.name: each.default_value for each in overload._schema.arguments if each.has_default_value()}
    given = {**defaults, **dict(zip(names, args)), **kwargs}
    return not any(isinstance(given.get(name), (bool, int, float)) and not given[name] for name in SWITCHES)
