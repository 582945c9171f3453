"""LSTM, GRU and RNN, step by step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..values import tensor
from .elementwise import FORMULAS, Formula
from .registry import Call, operator

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}


# Activations of recurrent layers alone.
ALONE: dict[str, Formula] = {
    "Affine": (lambda x, alpha, beta: alpha * x + beta, {"alpha": 1.0, "beta": 0.0}),
    "ScaledTanh": (lambda x, alpha, beta: alpha * torch.tanh(beta * x), {"alpha": 1.0, "beta": 1.0}),
}
KNOWN = {name.lower(): formula for name, formula in (FORMULAS | ALONE).items()}


def _activations(call: Call, directions: int) -> list[Callable[[Tensor], Tensor]]:
    """The activation functions of all directions, after the clipping of their inputs."""
    names = call.get("activations") or DEFAULTS[call.node.op] * directions
    alphas, betas = list(call.get("activation_alpha") or []), list(call.get("activation_beta") or [])
    found: list[Callable[[Tensor], Tensor]] = []
    for name in names:
        if name.lower() not in KNOWN:
            raise call.node.unsupported(f"has the unknown activation {name!r}")
        formula, defaults = KNOWN[name.lower()]
        values = dict(defaults)
        for key in defaults:
            given = alphas if key == "alpha" else betas
            if given:
                values[key] = given.pop(0)
        found.append(partial(_activated, formula, values, call.get("clip")))
    return found


def _activated(formula: Callable[..., Tensor], values: dict[str, float], clip: float | None, x: Tensor) -> Tensor:
    return formula(x if clip is None else x.clamp(-clip, clip), **values)


def _sequence(x: Tensor, step: Step, state: State, lengths: Tensor, reverse: bool) -> tuple[Tensor, State]:
    """All hidden states and the last state. x: (steps, batch, features)."""
    times = range(x.shape[0])
    y = x.new_zeros((x.shape[0], *state[0].shape))
    for time in reversed(times) if reverse else times:
        following = step(x[time], state)
        alive = (lengths > time).unsqueeze(-1)
        y[time] = torch.where(alive, following[0], 0.0)
        state = tuple(torch.where(alive, new, old) for new, old in zip(following, state))
    return y, state


def _lstm(call: Call, w: Tensor, r: Tensor, b: Tensor, p: Tensor | None, functions: Any) -> Step:
    f, g, h = functions
    size = r.shape[-1]
    pi, po, pf = p.split(size) if p is not None else (None, None, None)

    def peep(gate: Tensor, weight: Tensor | None, cell: Tensor) -> Tensor:
        return gate if weight is None else gate + weight * cell

    def step(x: Tensor, state: State) -> State:
        hidden, cell = state
        i, o, forget, c = (F.linear(x, w) + F.linear(hidden, r) + b).split(size, -1)
        enter = f(peep(i, pi, cell))
        keep = 1 - enter if call.get("input_forget", 0) else f(peep(forget, pf, cell))
        following = keep * cell + enter * g(c)
        return f(peep(o, po, following)) * h(following), following

    return step


def _gru(call: Call, w: Tensor, r: Tensor, wb: Tensor, rb: Tensor, functions: Any) -> Step:
    f, g = functions
    size = r.shape[-1]
    linear_first = bool(call.get("linear_before_reset", 0))

    def step(x: Tensor, state: State) -> State:
        (hidden,) = state
        xz, xr, xh = (F.linear(x, w) + wb).split(size, -1)
        hz, hr = (F.linear(hidden, r[: 2 * size]) + rb[: 2 * size]).split(size, -1)
        z, reset = f(xz + hz), f(xr + hr)
        last, bias = r[2 * size :], rb[2 * size :]
        inner = reset * (F.linear(hidden, last) + bias) if linear_first else F.linear(reset * hidden, last) + bias
        return ((1 - z) * g(xh + inner) + z * hidden,)

    return step


def _rnn(call: Call, w: Tensor, r: Tensor, b: Tensor, functions: Any) -> Step:
    return lambda x, state: (functions[0](F.linear(x, w) + F.linear(state[0], r) + b),)


@operator("LSTM", "GRU", "RNN")
def recurrent(call: Call, x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, *initial: Any) -> Any:
    """A recurrent layer in one or two directions. Returns all hidden states, the last one, and the last cell state."""
    kind, layout = call.node.op, call.get("layout", 0)
    x, w, r = tensor(x), tensor(w), tensor(r)
    directions, size = r.shape[0], r.shape[-1]
    biases = tensor(b) if b is not None else x.new_zeros((directions, 2 * w.shape[1]))
    h0, c0, peepholes = (*(None if part is None else tensor(part) for part in initial), None, None, None)[:3]
    if layout:
        x, h0, c0 = (None if part is None else part.transpose(0, 1) for part in (x, h0, c0))
    steps, batch = x.shape[:2]
    ends = tensor(lengths).long() if lengths is not None else torch.full((batch,), steps)
    functions = _activations(call, directions)
    each = len(functions) // directions
    outputs, finals = [], []
    for index in range(directions):
        mine = functions[index * each : (index + 1) * each]
        wb, rb = biases[index].chunk(2)
        if kind == "LSTM":
            step = _lstm(call, w[index], r[index], wb + rb, None if peepholes is None else peepholes[index], mine)
        elif kind == "GRU":
            step = _gru(call, w[index], r[index], wb, rb, mine)
        else:
            step = _rnn(call, w[index], r[index], wb + rb, mine)
        zero = x.new_zeros((batch, size))
        starts = [h0, c0] if kind == "LSTM" else [h0]
        state = tuple(zero if part is None else part[index] for part in starts)
        reverse = index == 1 or call.get("direction", "forward") == "reverse"
        y, last = _sequence(x, step, state, ends, reverse)
        outputs.append(y)
        finals.append(last)
    y = torch.stack(outputs, 1)
    states = [torch.stack(parts) for parts in zip(*finals)]
    if layout:
        y, states = y.permute(2, 0, 1, 3), [part.transpose(0, 1) for part in states]
    return (y, *states)[: max(1, len(call.node.outputs))]
