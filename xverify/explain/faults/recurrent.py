"""Faults of recurrent layers and cells: the order of their gates, and their biases.

The rows of their weights are the rows of all gates, one gate after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from .changes import combined, with_weight
from .fault import Forward, PortFault

# Number of gates -> their names in torch's order: of an LSTM, and of a GRU.
GATES = {4: ("i", "f", "g", "o"), 3: ("r", "z", "n")}
# Orders that other frameworks use; they are tried first.
LIKELY_ORDERS: dict[int, list[tuple[int, ...]]] = {4: [(0, 1, 3, 2), (0, 2, 1, 3), (0, 3, 1, 2)], 3: [(1, 0, 2)]}


def gates(layer: nn.Module) -> int | None:
    """The number of gates in the weights of the layer; None for a layer without gates."""
    if isinstance(layer, (nn.LSTM, nn.LSTMCell)):
        return 4
    if isinstance(layer, (nn.GRU, nn.GRUCell)):
        return 3
    parameters = dict(layer.named_parameters(recurse=False))
    if "weight_hh" not in parameters or parameters["weight_hh"].dim() != 2:
        return None
    rows, hidden = parameters["weight_hh"].shape
    return 4 if hidden and rows == 4 * hidden else None


def recurrent(layer: nn.Module) -> Iterator[PortFault]:
    """Gates in another order, and biases that are missing, doubled or shifted; nothing for layers without gates."""
    count = gates(layer)
    if count is None:
        return
    parameters = [name for name, _ in layer.named_parameters(recurse=False)]
    yield from _gate_orders(count, parameters)
    yield from _biases(count, [name for name in parameters if "bias" in name])


def _gate_orders(count: int, parameters: list[str]) -> Iterator[PortFault]:
    names, plain = GATES[count], tuple(range(count))

    def reordered(order: tuple[int, ...], weight: Tensor) -> Tensor:
        parts = weight.chunk(count)
        return torch.cat([parts[gate] for gate in order])

    for order in dict.fromkeys([*LIKELY_ORDERS[count], *itertools.permutations(plain)]):
        if order != plain:
            written = ", ".join(names[gate] for gate in order)
            says = f"takes the rows of its gates in the order {written}; the reference in {', '.join(names)}"
            yield PortFault("gate order", says, _with_all(parameters, partial(reordered, order)))


def _biases(count: int, biases: list[str]) -> Iterator[PortFault]:
    for part in ("bias_ih", "bias_hh"):
        names = [name for name in biases if part in name]
        if names:
            yield PortFault(f"{part} missing", f"has no {part}", _with_all(names, torch.zeros_like))
            yield PortFault(f"{part} doubled", f"adds {part} twice", _with_all(names, lambda bias: 2 * bias))
    input_biases = [name for name in biases if "bias_ih" in name]
    if count == 4 and input_biases:
        # Keras adds this 1 when it initialises an LSTM (unit_forget_bias).
        yield PortFault(
            "forget bias", "adds 1 to the forget gate's bias", _with_all(input_biases, _with_larger_forget_bias)
        )


def _with_larger_forget_bias(bias: Tensor) -> Tensor:
    bias.chunk(4)[1].add_(1.0)
    return bias


def _with_all(names: list[str], change: Callable[[Tensor], Tensor]) -> Forward:
    """Compute the layer with the same change of several weights."""
    return combined(*(with_weight(name, change) for name in names))
