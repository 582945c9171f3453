"""Mistakes in the settings of the optimizers of a user's own training step, and in their formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ..float64 import own_changes
from ..float64.own_step import Optimizers
from ..float64.replaced import hooked, replaced
from ..workload.optimizer_mistakes import KERAS_EPS, mistaken
from .glue_fitting import STARTS, solved
from .own_decays import decays, hidden_decay
from .own_losses import Results, targets
from .own_mistake import FACTOR, Case, Mistake, the
from .own_updates import Values, in_groups, with_settings
from .own_variants import adams, other_decay

DIGITS = 4  # of a number that is fitted
# Settings of torch's optimizers, of which usual values are tried.
KNOWN = {"lr", "initial_lr", "betas", "beta1", "beta2", "eps", "weight_decay", "momentum", "dampening", "alpha"}
MOST_SHOWN = 3  # steps whose learning rates are named


def settings(case: Case) -> Iterator[Mistake]:
    """The mistakes in the settings of the optimizers: usual other values, and numbers that are fitted to the port."""
    corrected = adams(case.optimizers)
    if len(corrected) > 1:
        says = f"eps is {KERAS_EPS:g}, the default of Keras, in all optimizers"
        yield Mistake("eps of all", says, partial(with_settings, corrected, lambda _group, _step: {"eps": KERAS_EPS}))
    for name in case.names:
        optimizer = case.optimizers[name]
        yield from _other_values(name, optimizer, case)
        yield from _formulas(name, optimizer)
        yield from decays(name, optimizer, case)
        yield from _groups(name, optimizer, case)
        yield from _rates(name, optimizer, case)
        yield from _own_numbers(name, optimizer, case)


def _own_numbers(name: str, optimizer: Any, case: Case) -> Iterator[Mistake]:
    """Settings of the user's own optimizer that torch's do not have, such as the radius of SAM, fitted to the port."""
    steps = replace(case.steps, files=case.steps.files[: case.port.first + 1])
    group = optimizer.param_groups[0]
    numbers = {key: value for key, value in group.items() if key not in KNOWN and isinstance(value, float) and value}
    for (key, right), (read, captured) in product(numbers.items(), targets(case)):

        def value(number: float, key: str = key, read: Results = read) -> Tensor:
            return read(list(steps.drive(change=partial(own_changes.settings, [name], {key: number})))[-1])

        found = next(filter(None, (solved(value, right * start, captured) for start in STARTS)), None)
        # One of the other sign is another operation, which has a name of its own.
        for number in (
            () if found is None or found * right < 0 else dict.fromkeys((float(f"{found:.{DIGITS}g}"), found))
        ):
            says = f"{the(name)} behaves as {key} {number:.7g}; torch.py says {right:g}"
            yield Mistake(key, says, partial(own_changes.settings, [name], {key: number}))


def _other_values(name: str, optimizer: Any, case: Case) -> Iterator[Mistake]:
    """Usual other values of the settings of an optimizer, those of its first parameter group."""
    group = optimizer.param_groups[0]
    known = {key: value for key, value in group.items() if isinstance(value, (bool, int, float))}
    if isinstance(group.get("betas"), tuple):
        known |= {"beta1": group["betas"][0], "beta2": group["betas"][1]}
    for each in mistaken(known):
        says = f"{the(name)} {each.says('torch.py says')}"
        if each.kind == "weight_decay" and each.right:
            says += hidden_decay(optimizer, case)
        yield Mistake(each.kind, says, partial(with_settings, [name], _changed(each.values)))


def _changed(values: Mapping[str, Any]) -> Values:
    """The settings of a group with other values; "beta1" and "beta2" are the betas."""

    def of(group: dict[str, Any], _step: int) -> Mapping[str, Any]:
        found = {key: value for key, value in values.items() if key not in ("beta1", "beta2")}
        if len(found) < len(values):
            found["betas"] = tuple(values.get(f"beta{k + 1}", beta) for k, beta in enumerate(group["betas"]))
        return found

    return of


# -- formulas ----------------------------------------------------------------------------------------------------------


def _formulas(name: str, optimizer: Any) -> Iterator[Mistake]:
    """Another formula of the same optimizer."""
    group = optimizer.param_groups[0]
    if group.get("weight_decay"):
        says = f"{the(name)} adds its weight decay elsewhere: to the gradient in place of the weight, or the reverse"
        yield Mistake("decay", says, partial(other_decay, [name]))
    if "betas" in group:
        says = f"{the(name)} does not correct the bias of its moments"
        yield Mistake("bias correction", says, partial(with_settings, [name], _uncorrected))
        yield from _other_optimizers(name, type(optimizer).__name__)
    if group.get("momentum") and "nesterov" in group:
        says = f"{the(name)} multiplies the gradient by the learning rate before the momentum, and not after it"
        yield Mistake("rate in momentum", says, partial(_rate_in_momentum, name))


def _other_optimizers(name: str, right: str) -> Iterator[Mistake]:
    """Another optimizer with two betas. That of Adam with its decay coupled or decoupled is listed before."""
    others = {"NAdam": ("Adam",), "Adam": ("NAdam",), "AdamW": ("NAdam",)}.get(right, ("AdamW", "Adam", "NAdam"))
    for other in others:
        says = f"{the(name)} is {other.replace('NA', 'Na')}; torch.py has {right}"
        yield Mistake("optimizer", says, partial(_as, name, getattr(torch.optim, other)))


def _uncorrected(group: dict[str, Any], step: int) -> Mapping[str, Any]:
    """The settings with which torch's formula computes Adam without its bias corrections."""
    first, second = (1 - beta ** (step + 1) for beta in group["betas"])
    rate = group["lr"] * first / second**0.5
    found = {"lr": rate, "eps": group["eps"] / second**0.5}
    if group.get("decoupled_weight_decay"):
        found["weight_decay"] = group["weight_decay"] * group["lr"] / rate
    return found


@contextmanager
def _as(name: str, kind: Any, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Let another optimizer of torch make the updates, with the settings that it shares with this one."""
    own, shared = optimizers[name], ("params", "lr", "betas", "eps", "weight_decay", "decoupled_weight_decay")
    other = kind([{key: group[key] for key in shared if key in group} for group in own.param_groups], lr=1e-3)

    def step(*_: Any, **__: Any) -> None:
        for group, right in zip(other.param_groups, own.param_groups):
            group["lr"] = right["lr"]
        other.step()

    with replaced(own, step=step):
        yield


@contextmanager
def _rate_in_momentum(name: str, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Keep the sum of the updates in place of that of the gradients: a change of the rate then comes later."""
    optimizer, last = optimizers[name], dict[int, float]()

    def before(*_: Any) -> None:
        for place, group in enumerate(optimizer.param_groups):
            factor = last.get(place, group["lr"]) / group["lr"] if group["lr"] else 1.0
            last[place] = group["lr"]
            for each in group["params"]:
                buffer = optimizer.state[each].get("momentum_buffer")
                if buffer is not None:
                    buffer.mul_(factor)

    with hooked([optimizer.register_step_pre_hook(before)]):
        yield


# -- groups and rates --------------------------------------------------------------------------------------------------


def _groups(name: str, optimizer: Any, _case: Case) -> Iterator[Mistake]:
    """One parameter group with the learning rate or the weight decay of another one."""
    groups = optimizer.param_groups
    for setting, words in (("lr", "learning rate"), ("weight_decay", "weight decay")):
        values = [group.get(setting) for group in groups]
        for place, right in enumerate(values):
            for other in dict.fromkeys(value for value in values if value is not None and value != right):
                says = (
                    f"group {place} of {the(name)} behaves as {words} {other:g}; torch.py says {right:g} for it, and "
                    f"{other:g} for another group"
                )
                yield Mistake(setting, says, partial(_one_group, name, place, {setting: other}))


@contextmanager
def _one_group(
    name: str, place: int, values: Mapping[str, Any], _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    optimizer = optimizers[name]
    chosen = optimizer.param_groups[place]
    with in_groups(optimizer, lambda group, _step: values if group is chosen else {}):
        yield


def _rates(name: str, optimizer: Any, case: Case) -> Iterator[Mistake]:
    """Another learning rate, and another place in its schedule."""
    steps, following = _rates_of_steps(name, case)
    given = [rates for step in steps for rates in step]
    if any(rates != given[0] for rates in given):
        initial = [group.get("initial_lr", group["lr"]) for group in optimizer.param_groups]
        schedule = f"the schedule of the learning rate of {the(name)} is one step"
        unchanging = f"the learning rate of {the(name)} does not change; torch.py has a schedule"
        for says, rates in (
            (f"{schedule} ahead of torch.py", [*given[1:], following]),
            (f"{schedule} behind torch.py", [given[0], *given[:-1]]),
            (unchanging, [given[0]]),
            (unchanging, [initial]),
        ):
            yield Mistake("schedule", says, partial(_with_rates, name, rates))
    factor, first = case.factor(), steps[case.port.first]
    right = first[0][0] if first else 0.0
    if factor > 0 and right:
        for rounded in dict.fromkeys((float(f"{right * factor:.{DIGITS}g}"), right * factor)):
            if rounded != right:
                says = f"{the(name)} behaves as learning rate {rounded:.6g}; it should be {right:.6g}"
                says += f" (in step {case.port.first} of its schedule)" if len(set(map(tuple, given))) > 1 else ""
                yield Mistake("lr", says, partial(with_settings, [name], _scaled(rounded / right)))


def schedules(case: Case) -> Iterator[Mistake]:
    """A learning rate of its own in each step, fitted to the port."""
    for name in case.names:
        steps, _ = _rates_of_steps(name, case)
        if any(len(step) > 1 for step in steps):
            continue
        right = {number: step[0] for number, step in enumerate(steps) if step}
        factors = {number: case.factor(number) for number in right}
        differing = [number for number, factor in factors.items() if abs(factor - 1) > FACTOR]
        if not differing or any(not factor >= 0 for factor in factors.values()):
            continue
        rates = {number: [rate * factors[number] for rate in every] for number, every in right.items()}
        listed = [
            f"{rates[number][0]:.{DIGITS}g} in step {number} (it should be {right[number][0]:.{DIGITS}g})"
            for number in differing[:MOST_SHOWN]
        ]
        says = f"the learning rate of {the(name)} is {', '.join(listed)}"
        if len(differing) > MOST_SHOWN:
            says += f", and differs in {len(differing) - MOST_SHOWN} more steps"
        yield Mistake("schedule", says, partial(_with_rates, name, list(rates.values())))


def _scaled(factor: float) -> Values:
    return lambda group, _step: {"lr": group["lr"] * factor}


@contextmanager
def _with_rates(
    name: str, rates: Sequence[Sequence[float]], _model: nn.Module, optimizers: Optimizers
) -> Iterator[None]:
    """Give the groups of an optimizer these learning rates in each of its calls; the last ones in all later calls."""
    optimizer = optimizers[name]
    groups = list(optimizer.param_groups)

    def values(group: dict[str, Any], call: int) -> Mapping[str, Any]:
        place = next(place for place, each in enumerate(groups) if each is group)
        return {"lr": rates[min(call, len(rates) - 1)][place]}

    with in_groups(optimizer, values):
        yield


def _rates_of_steps(name: str, case: Case) -> tuple[list[list[list[float]]], list[float]]:
    """(the learning rates of the groups of an optimizer in each of its calls in each step, those after the last step)."""
    calls, optimizer = list[list[float]](), list[Any]()

    @contextmanager
    def noted(_model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
        optimizer.append(optimizers[name])
        with hooked([optimizers[name].register_step_pre_hook(lambda each, *_: calls.append(_rates_now(each)))]):
            yield

    steps, before = list[list[list[float]]](), 0
    for _ in case.steps.drive(change=noted):
        steps.append(calls[before:])
        before = len(calls)
    return steps, _rates_now(optimizer[0])


def _rates_now(optimizer: Any) -> list[float]:
    return [float(group["lr"]) for group in optimizer.param_groups]
