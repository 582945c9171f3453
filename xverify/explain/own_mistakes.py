"""Known mistakes in a user's own training step. The reference's step is made with each of them, until one does what a port does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..float64.layer_kinds import BATCH_NORMS
from ..float64.own_changes import settings, without_zero_grad
from ..float64.own_clipping import WHAT, clipped
from ..float64.own_step import Change, Optimizers, Steps, Taken
from ..float64.own_truth import rms, write_changed
from ..float64.replaced import hooked, replaced
from ..verdict.limits import OWN_DRIFT, OWN_EQUAL
from ..weights.canonical import Array
from .deadline import Deadline, OutOfTime
from .own_variants import adams, applying, other_decay, varied

SECONDS = 60.0  # of computation that the search for an explanation may take
NEAR = (
    1e-3  # share of a change by which an explanation may be off, besides the noise: the port's formulas may differ, too
)
BETTER = 0.1  # an explanation must leave less than this share of the residual
CLIPPED = (0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0)  # norms at which gradients are often clipped
CLIPPED_VALUES = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0)  # the same of single values
BETAS = ((0.9, 0.5, 0.0, 0.8, 0.95, 0.99), (0.999, 0.99, 0.9, 0.95, 0.98))
CONSTANTS = {
    "alpha": (0.9, 0.95, 0.99, 0.999),
    "momentum": (0.0, 0.5, 0.9, 0.99),
    "eps": (1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3),
}

Arrays = Mapping[str, Array]
Mistakes = Callable[[Optimizers], Iterator["Mistake"]]


@dataclass(frozen=True)
class Mistake:
    """One mistake. says: a clause for the report. change: makes it.

    difference: the name of a known difference of frameworks, which is no mistake; "" for a mistake.
    optimizer: the name of the optimizer whose settings are wrong; None where it is not a matter of one.
    """

    says: str
    change: Change
    difference: str = ""
    optimizer: str | None = None


def write_variants(steps: Steps, folder: Path, seed: int, repeats: int, variants: Sequence[str]) -> tuple[str, ...]:
    """Write the arrays of the exact steps with formula variants of other frameworks' optimizers, as ``truths`` writes them.

    The noise is that of the variants: where a gradient is near eps, that of Adam's is not the noise of torch's formula.

    Returns those of the variants that the optimizers of the step can have. Without any, nothing is written.
    """
    found = applying(variants, steps.optimizers())
    if found:
        write_changed(steps, folder, partial(_all_of, varied(found)), seed, repeats)
    return found


def explain(
    steps: Steps,
    found: Arrays,
    exact: Arrays,
    floors: Mapping[str, float],
    place: str,
    optimizer: str = "",
    variants: Sequence[str] = (),
) -> tuple[str, str]:
    """(what a report says, the name of a known difference) of the first mistake that explains the weights after the last step.

    ("", "") when none does.

    steps: up to the one that differs. found, exact: the weights after it, of the port and of the exact step.
    floors: weight -> rms of the noise in it, of all weights to explain. place: where the mistake is, a key of PLACES.
    optimizer: the name of the one that updates these weights, whose settings may be wrong; "" where it is not known.
    variants: formula variants that the optimizers have, too.
    """
    deadline = Deadline(SECONDS)
    optimizers = steps.optimizers()
    residuals = {name: found[name].astype(np.float64) - exact[name] for name in floors}
    for mistake in PLACES[place](optimizers):
        if mistake.optimizer not in (None, optimizer) and optimizer in optimizers:
            continue
        try:
            with deadline.limited():  # a step with a mistake in it may diverge, and never end
                # The variants take the settings of the changed optimizers.
                taken = list(steps.drive(change=partial(_all_of, [mistake.change, *varied(variants)])))[-1]
        except OutOfTime:
            break
        except Exception:  # the user's code may not run with this mistake in it
            continue
        if _explains(mistake, taken, found, residuals, floors):
            return mistake.says, mistake.difference
    return "", ""


@contextmanager
def _all_of(changes: Sequence[Change], model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Several changes, in this order."""
    with ExitStack() as stack:
        for change in changes:
            stack.enter_context(change(model, optimizers))
        yield


def _explains(mistake: Mistake, taken: Taken, found: Arrays, residuals: Arrays, floors: Mapping[str, float]) -> bool:
    """Whether the step with a mistake changes every weight as the port does. A known difference must do so within the noise."""
    better = False
    for name, floor in floors.items():
        left, before, limit = rms(found[name] - taken.after[name]), rms(residuals[name]), OWN_EQUAL * floor
        if not mistake.difference:
            limit = max(OWN_DRIFT * floor, NEAR * rms(taken.changes[name]))
        if not left <= limit:
            return False
        better = better or (before > OWN_EQUAL * floor and left <= BETTER * before)
    return better


# -- mistakes in the changes of weights -------------------------------------------------------------------------------


def mistakes_in_gradients(optimizers: Optimizers) -> Iterator[Mistake]:
    """The mistakes that change what an optimizer is given."""
    for name in optimizers:
        yield Mistake(
            f"the gradients of {_the(name)} are not zeroed", partial(without_zero_grad, [name], len(optimizers) == 1)
        )
    if len(optimizers) > 1:
        yield Mistake("gradients are not zeroed", partial(without_zero_grad, list(optimizers), True))
    yield Mistake("a detach is missing, so that a loss also trains weights that it must not train", _without_detach)
    for late, other in permutations(optimizers, 2):
        yield Mistake(
            f"the gradients of {_the(other)} are computed with stale weights: those before the update of {_the(late)}",
            partial(_late_update, late, other),
        )


def mistakes_in_settings(optimizers: Optimizers) -> Iterator[Mistake]:
    """The mistakes in the settings of the optimizers."""
    corrected = adams(optimizers)
    if corrected:
        yield Mistake("eps is 1e-07, the default of Keras", partial(settings, corrected, {"eps": 1e-7}))
    for name, each in optimizers.items():
        yield from _other_settings(name, each.param_groups[0])


def mistakes_in_clipping(_optimizers: Optimizers) -> Iterator[Mistake]:
    """Gradients that are not clipped, or that are clipped at another norm."""
    yield Mistake(
        "clipping is missing: torch.py clips the gradients, and this step does not", partial(clipped, math.inf, "all")
    )
    for what, says in WHAT.items():
        for limit in CLIPPED_VALUES if what == "values" else CLIPPED:
            yield Mistake(f"{says.format(limit)}, which torch.py does not do", partial(clipped, limit, what))


def _all(*places: Mistakes) -> Mistakes:
    """The mistakes of several places."""

    return lambda optimizers: (mistake for mistakes in places for mistake in mistakes(optimizers))


def _the(name: str) -> str:
    return f"optimizer {name!r}" if name else "the optimizer"


def _other_settings(name: str, group: Mapping[str, Any]) -> Iterator[Mistake]:
    """The mistakes in the settings of one optimizer. group: its first parameter group."""

    def other(setting: str, value: float, right: float, **values: Any) -> Mistake:
        says = f"{_the(name)} behaves as {setting} {value:g}; torch.py says {right:g}"
        return Mistake(says, partial(settings, [name], values or {setting: value}), optimizer=name)

    if isinstance(group.get("betas"), tuple):
        betas = group["betas"]
        for place, values in enumerate(BETAS):
            for value in (each for each in values if each != betas[place]):
                changed = (value, betas[1]) if place == 0 else (betas[0], value)
                yield other(f"beta{place + 1}", value, betas[place], betas=changed)
        if betas[0] != 0.9 and betas[1] != 0.999:
            says = f"{_the(name)} behaves as betas 0.9 and 0.999; torch.py says {betas[0]:g} and {betas[1]:g}"
            yield Mistake(says, partial(settings, [name], {"betas": (0.9, 0.999)}), optimizer=name)
    if group.get("weight_decay"):
        yield other("weight decay", 0.0, group["weight_decay"], weight_decay=0.0)
        says = f"{_the(name)} adds its weight decay elsewhere: to the gradient in place of the weight, or the reverse"
        yield Mistake(says, partial(other_decay, [name]), optimizer=name)
    if group.get("momentum") and not group.get("dampening") and "nesterov" in group:
        how = "without" if group["nesterov"] else "with"
        says = f"{_the(name)} behaves {how} Nesterov momentum"
        yield Mistake(says, partial(settings, [name], {"nesterov": not group["nesterov"]}), optimizer=name)
    for setting, values in CONSTANTS.items():
        for value in values if setting in group else ():
            if isinstance(group[setting], (int, float)) and value != group[setting]:
                more = {"nesterov": False} if setting == "momentum" and not value and "nesterov" in group else {}
                yield other(setting, value, group[setting], **{setting: value, **more})


@contextmanager
def _without_detach(_model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """``detach`` returns the tensor itself. A graph is then used by several backward passes, and must be kept."""
    detach, backward = Tensor.detach, Tensor.backward

    def attached(tensor: Tensor) -> Tensor:
        return detach(tensor) if tensor.is_leaf else tensor

    def keeping(tensor: Tensor, *args: Any, **kwargs: Any) -> None:
        backward(tensor, *args, **{**kwargs, "retain_graph": True})

    with replaced(Tensor, detach=attached, backward=keeping):
        yield


@contextmanager
def _late_update(late: str, other: str, _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Make the update of an optimizer only when the other one makes its own."""
    first, second = optimizers[late], optimizers[other]
    update_first, update_second = first.step, second.step
    pending: list[list[tuple[Tensor, Tensor]]] = []

    def keep(*_: Any) -> None:
        given = [each for group in first.param_groups for each in group["params"] if each.grad is not None]
        pending.append([(each, each.grad.clone()) for each in given])

    def both(*args: Any, **kwargs: Any) -> Any:
        for gradients in pending:
            own = [each.grad for each, _ in gradients]
            for each, gradient in gradients:
                each.grad = gradient
            update_first()
            for (each, _), gradient in zip(gradients, own):
                each.grad = gradient
        pending.clear()
        return update_second(*args, **kwargs)

    with replaced(first, step=keep), replaced(second, step=both):
        yield


# -- mistakes in running statistics -----------------------------------------------------------------------------------


def mistakes_in_statistics(_optimizers: Optimizers) -> Iterator[Mistake]:
    """The known differences and mistakes of the running statistics of batch norms."""
    biased = "its running variance uses the biased variance: torch multiplies that by n/(n - 1)"
    momentum = "momentum weighs the old value instead of the new one"
    yield Mistake(f"biased variance: {biased}", partial(_norms, True, False), "biased variance")
    yield Mistake(momentum, partial(_norms, False, True))
    yield Mistake(f"{momentum}, and {biased}", partial(_norms, True, True))


@contextmanager
def _norms(biased: bool, reversed_momentum: bool, model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """Change the running statistics of all batch norms that average by a momentum."""
    norms = [each for each in model.modules() if isinstance(each, BATCH_NORMS) and each.momentum]
    for norm in norms if reversed_momentum else ():
        norm.momentum = 1 - norm.momentum
    hooks = [norm.register_forward_pre_hook(_keep_variance) for norm in norms if biased]
    with hooked([*hooks, *(norm.register_forward_hook(_take_biased) for norm in norms if biased)]):
        yield


def _keep_variance(norm: Any, _args: Any) -> None:
    norm.old_variance = norm.running_var.clone()


def _take_biased(norm: Any, args: Any, _result: Any) -> None:
    terms = args[0].numel() // args[0].shape[1]
    share = norm.running_var - (1 - norm.momentum) * norm.old_variance
    norm.running_var = norm.running_var - share / terms  # not in place, because autograd has stored the old tensor


# Where a mistake is -> the mistakes there. "update": it is not known whether gradients or settings differ. An optimizer may clip
# the gradients that it is given, which is then one of its settings. "clipping": for an update that is a multiple of the right one.
PLACES: Mapping[str, Mistakes] = {
    "update": _all(mistakes_in_gradients, mistakes_in_clipping, mistakes_in_settings),
    "gradients": _all(mistakes_in_gradients, mistakes_in_clipping),
    "settings": _all(mistakes_in_settings, mistakes_in_clipping),
    "clipping": mistakes_in_clipping,
    "statistics": mistakes_in_statistics,
}
