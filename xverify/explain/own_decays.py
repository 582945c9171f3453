"""Mistakes in the weight decay of a user's own training step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from ..float64.own_step import Optimizers
from ..float64.own_truth import rms
from ..float64.replaced import hooked
from ..verdict.limits import OWN_EQUAL
from .own_mistake import Case, Mistake, the
from .own_updates import around_updates, with_settings

DIGITS = 4  # of a number that is fitted
SMALL = 1e-3  # share of the right weight decay: a hidden one below it is not told
ROUNDED = 3e-3  # share by which a fitted weight decay may be off: its effect in one step is near the rounding


def decays(name: str, optimizer: Any, case: Case) -> Iterator[Mistake]:
    """A weight decay that some parameters have, or do not have, by mistake, and another one that fits."""
    owners = [group for group in optimizer.param_groups for _ in group["params"]]
    if "weight_decay" not in owners[0]:
        return
    largest = max(group["weight_decay"] for group in owners)
    for words, places in _kinds(case.model, optimizer):
        own = {bool(owners[place]["weight_decay"]) for place in places}
        if own == {True}:
            says = f"{the(name)} applies no weight decay to {words}; torch.py does"
            yield Mistake("weight_decay", says, partial(_for_some, name, places, {"weight_decay": 0.0}))
        elif own == {False} and largest:
            says = f"{the(name)} applies the weight decay {largest:g} to {words}, too; torch.py does not"
            yield Mistake("weight_decay", says, partial(_for_some, name, places, {"weight_decay": largest}))
    decay = _fitted_decay(optimizer, case)
    if decay is not None:
        says = f"{the(name)} behaves as weight decay {decay:g}; torch.py says {largest:g}"

        def other(group: dict[str, Any], _step: int) -> Mapping[str, Any]:
            return {"weight_decay": decay} if group["weight_decay"] or not largest else {}

        yield Mistake("weight_decay", says, partial(with_settings, [name], other))
    if decay is not None and decay > largest:
        more = float(f"{decay - largest:.{DIGITS}g}")
        says = (
            f"{the(name)} shrinks the weights by a weight decay of {more:g} (decoupled, as in AdamW); torch.py has none"
        )
        says += " of that kind" if largest else ""
        yield Mistake("weight_decay", says, partial(_decoupled, name, more))


@contextmanager
def _decoupled(name: str, decay: float, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Shrink the weights before each update."""

    def before(optimizer: Any, *_: Any) -> None:
        with torch.no_grad():
            for group in optimizer.param_groups:
                for each in (each for each in group["params"] if each.grad is not None):
                    each.mul_(1 - group["lr"] * decay)

    with hooked([optimizers[name].register_step_pre_hook(before)]):
        yield


def _fitted_decay(optimizer: Any, case: Case) -> float | None:
    """The weight decay that a step with the right gradients has, where it adds the decay to the weight or to a plain gradient."""
    groups = {id(each): group for group in optimizer.param_groups for each in group["params"]}
    weights = case.parameters()
    for name in case.port.blamed:
        group = groups.get(id(weights.get(name)))
        if group is None or not group["lr"]:
            continue
        own, right = case.changes(name)
        before = case.port.exact[case.port.first][f"after/{name}"] - right
        size = float(np.vdot(before, before)) * group["lr"]
        found = group["weight_decay"] - float(np.vdot(own - right, before)) / size if size else math.nan
        rounded = (float(f"{found:.{digits}g}") for digits in range(1, DIGITS + 1))
        return next((each for each in rounded if abs(each - found) <= ROUNDED * found), None) if found > 0 else None
    return None


def hidden_decay(optimizer: Any, case: Case) -> str:
    """What is said of a missing weight decay where another one is so small that the rounding of the weights hides it."""
    group, floors = optimizer.param_groups[0], case.port.floors[case.port.first]
    after = case.port.exact[case.port.first]
    sizes = [rms(after[f"after/{name}"]) * group["lr"] for name in case.port.blamed]
    hidden = min((OWN_EQUAL * floors[name] / size for name, size in zip(case.port.blamed, sizes) if size), default=0.0)
    return f" (one below {hidden:.1g} could not be seen)" if hidden > SMALL * group["weight_decay"] else ""


def _kinds(model: nn.Module, optimizer: Any) -> Iterator[tuple[str, list[int]]]:
    """The parameters of an optimizer that are often treated apart: what they are called, and their places in it."""
    names = {id(each): name for name, each in model.named_parameters()}
    every = [each for group in optimizer.param_groups for each in group["params"]]
    is_bias = [names.get(id(each), "").endswith("bias") for each in every]
    vectors = [place for place, each in enumerate(every) if each.dim() < 2]
    biases = [place for place in vectors if is_bias[place]]
    scales = [place for place in vectors if not is_bias[place]]
    if biases and scales:
        yield "biases and the weights of normalisations", vectors
    for words, places in (("biases", biases), ("the weights of normalisations", scales)):
        if places and len(places) < len(every):
            yield words, places
    if vectors and len(vectors) < len(every):
        yield "matrices and kernels", [place for place in range(len(every)) if place not in vectors]


@contextmanager
def _for_some(
    name: str, places: Sequence[int], values: Mapping[str, Any], _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    """Give some parameters of an optimizer other settings. places: theirs among all parameters of the optimizer."""
    optimizer = optimizers[name]
    groups = optimizer.param_groups
    every = [each for group in groups for each in group["params"]]
    chosen = {id(every[place]) for place in places}

    def before() -> None:
        split = list[dict[str, Any]]()
        for group in groups:
            some = [each for each in group["params"] if id(each) in chosen]
            others = [each for each in group["params"] if id(each) not in chosen]
            split += [{**group, "params": others}, {**group, "params": some, **values}]
        optimizer.param_groups = [group for group in split if group["params"]]

    def after() -> None:
        optimizer.param_groups = groups

    with around_updates(optimizer, before, after):
        yield
