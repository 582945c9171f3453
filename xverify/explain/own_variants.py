"""The known differences of other frameworks' optimizers from torch's, in a user's own training step. Each changes the reference's.

Their names and meanings are those of a recipe: the keys of workload.optimizers.VARIANTS and workload.recipe.DIFFERENCES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.own_step import Change, Optimizers, Steps
from ..float64.own_truth import write_changed
from ..float64.replaced import hooked, replaced_everywhere
from .own_updates import all_of, around_updates, unchanged, with_settings

# What an update makes: (parameter group, state of the parameter after it, weight before it, gradient) -> weight after it.
Rule = Callable[[Mapping[str, Any], Mapping[str, Any], Tensor, Tensor], Tensor]


def applying(variants: Sequence[str], optimizers: Optimizers) -> tuple[str, ...]:
    """Those of the variants that a step with these optimizers can have."""
    groups = [(each, group) for each in optimizers.values() for group in each.param_groups]
    can = {
        "eps-hat": bool(adams(optimizers)),
        "eps-inside": any(_plain_rmsprop(each, group) for each, group in groups),
        "decoupled": any(group.get("weight_decay") and not is_decoupled(each) for each, group in groups),
        "corrected maximum": any(_amsgrad(each) for each in optimizers.values()),
        "clip eps": True,
    }
    return tuple(each for each in variants if can[each])


def write_variants(
    steps: Steps, folder: Path, seed: int, repeats: int, variants: Sequence[str], given: Change = unchanged
) -> tuple[str, ...]:
    """Write the arrays of the exact steps with formula variants of other frameworks' optimizers, as ``truths`` writes them.

    The noise is that of the variants: where a gradient is near eps, that of Adam's is not the noise of torch's formula.

    given: gives the optimizers other gradients.

    Returns those of the variants that the optimizers of the step can have. Without any of those asked for, nothing is written.
    """
    found = applying(variants, steps.optimizers())
    if found or not variants:
        write_changed(steps, folder, all_of(partial(with_variants, found), given), seed, repeats)
    return found


@contextmanager
def with_variants(variants: Sequence[str], model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Give the optimizers these variants. They take the settings that changes within this context give the optimizers."""
    with ExitStack() as stack:
        for name, change in _CHANGES.items():
            if name in variants:
                stack.enter_context(change(model, optimizers))
        yield


def adams(optimizers: Optimizers) -> list[str]:
    """The names of the optimizers that correct the bias of their moments and add eps. Lion has betas and does not."""
    return [
        name
        for name, each in optimizers.items()
        if all(group.get("betas") and isinstance(group.get("eps"), float) for group in each.param_groups)
    ]


def is_decoupled(optimizer: Any) -> bool:
    """Whether an optimizer shrinks the weight itself, and does not add the weight decay to the gradient."""
    return isinstance(optimizer, torch.optim.AdamW) or bool(optimizer.param_groups[0].get("decoupled_weight_decay"))


def _eps_hat(model: nn.Module, optimizers: Optimizers) -> AbstractContextManager[None]:
    """Every Adam adds eps before the bias correction: in torch's formula, it is then eps / sqrt(1 - beta2**t)."""

    def grown(group: dict[str, Any], step: int) -> Mapping[str, Any]:
        return {"eps": group["eps"] / (1 - group["betas"][1] ** (step + 1)) ** 0.5}

    return with_settings(adams(optimizers), grown, model, optimizers)


@contextmanager
def other_decay(names: Sequence[str], model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Decouple the weight decay of these optimizers, or add it to the gradient where it is decoupled."""
    none = with_settings(names, lambda _group, _step: {"weight_decay": 0.0}, model, optimizers)
    with none, ExitStack() as stack:
        for optimizer in (optimizers[name] for name in names):
            stack.enter_context(around_updates(optimizer, partial(_decay, optimizer), lambda: None))
        yield


def _decay(optimizer: Any) -> None:
    """Add the weight decay where the optimizer does not: to the gradients, or to the weights."""
    coupled = is_decoupled(optimizer)
    given = [(group, each) for group in optimizer.param_groups for each in group["params"] if each.grad is not None]
    for group, each in given:
        if coupled:
            each.grad.add_(each.detach(), alpha=group.get("weight_decay", 0.0))
        else:
            each.data.mul_(1 - group["lr"] * group.get("weight_decay", 0.0))


@contextmanager
def _decoupled(model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Every weight decay shrinks the weight itself."""
    with other_decay([name for name, each in optimizers.items() if not is_decoupled(each)], model, optimizers):
        yield


def _plain_rmsprop(optimizer: Any, group: Mapping[str, Any]) -> bool:
    """Whether an optimizer is an RMSprop without momentum."""
    return isinstance(optimizer, torch.optim.RMSprop) and not (
        group["momentum"] or group["centered"] or group["maximize"]
    )


@contextmanager
def _eps_inside(_model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Every RMSprop adds eps below its square root."""

    def rule(group: Mapping[str, Any], state: Mapping[str, Any], weight: Tensor, gradient: Tensor) -> Tensor:
        gradient = gradient + group["weight_decay"] * weight if group["weight_decay"] else gradient
        return weight - group["lr"] * gradient / (state["square_avg"] + group["eps"]).sqrt()

    with _other_rule(
        [each for each in optimizers.values() if _plain_rmsprop(each, each.param_groups[0])], lambda: rule
    ):
        yield


@contextmanager
def _corrected_maximum(_model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """AMSGrad keeps the largest of the second moments after their bias correction."""
    with _other_rule([each for each in optimizers.values() if _amsgrad(each)], _amsgrad_of_corrected):
        yield


def _amsgrad(optimizer: Any) -> bool:
    return isinstance(optimizer, (torch.optim.Adam, torch.optim.AdamW)) and optimizer.param_groups[0]["amsgrad"]


def _amsgrad_of_corrected() -> Rule:
    largest: dict[int, Tensor] = {}

    def rule(group: Mapping[str, Any], state: Mapping[str, Any], weight: Tensor, _gradient: Tensor) -> Tensor:
        (beta1, beta2), steps, mean = group["betas"], float(state["step"]), state["exp_avg"]
        corrected = state["exp_avg_sq"] / (1 - beta2**steps)
        largest[id(mean)] = torch.maximum(corrected, largest.get(id(mean), corrected))
        if group.get("decoupled_weight_decay"):
            weight = weight * (1 - group["lr"] * group["weight_decay"])
        return weight - group["lr"] / (1 - beta1**steps) * mean / (largest[id(mean)].sqrt() + group["eps"])

    return rule


@contextmanager
def _other_rule(optimizers: Sequence[Any], make: Callable[[], Rule]) -> Iterator[None]:
    """Every update of these optimizers is that of a rule. make: makes one, which may keep a state, for each optimizer."""

    def hooks(optimizer: Any) -> Iterator[Any]:
        before: list[tuple[Mapping[str, Any], Tensor, Tensor]] = []
        rule = make()

        def keep(*_: Any) -> None:
            given = [(group, each) for group in optimizer.param_groups for each in group["params"]]
            before[:] = [(group, each, each.detach().clone()) for group, each in given if each.grad is not None]

        def update(*_: Any) -> None:
            with torch.no_grad():
                for group, each, weight in before:
                    each.copy_(rule(group, optimizer.state[each], weight, each.grad))

        yield optimizer.register_step_pre_hook(keep)
        yield optimizer.register_step_post_hook(update)

    with hooked(hook for each in optimizers for hook in hooks(each)):
        yield


@contextmanager
def _clip_without_eps(_model: nn.Module, _optimizers: Optimizers) -> Iterator[None]:
    """Clipped gradients are divided by their norm itself, to which torch adds 1e-6."""
    clip = nn.utils.clip_grad_norm_

    def clipped(parameters: Any, max_norm: float, *args: Any, **settings: Any) -> Tensor:
        chosen = [parameters] if isinstance(parameters, Tensor) else list(parameters)
        norm = clip(chosen, float("inf"), *args, **settings)
        for each in (each for each in chosen if each.grad is not None):
            if float(norm) > max_norm:
                each.grad.mul_(max_norm / norm)
        return norm

    with replaced_everywhere(clip, clipped):
        yield


# Variant -> the change that makes it; a weight decay changes the weight before the update, and comes first.
_CHANGES: Mapping[str, Change] = {
    "clip eps": _clip_without_eps,
    "decoupled": _decoupled,
    "eps-hat": _eps_hat,
    "eps-inside": _eps_inside,
    "corrected maximum": _corrected_maximum,
}
