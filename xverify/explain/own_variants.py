"""The known differences of other frameworks' optimizers from torch's, in a user's own training step. Each changes the reference's.

Their names and meanings are those of a recipe: the keys of workload.optimizers.VARIANTS and workload.recipe.DIFFERENCES.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.own_step import Change, Optimizers
from ..float64.replaced import hooked, replaced_everywhere

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


def varied(variants: Sequence[str]) -> list[Change]:
    """The changes that give the optimizers these variants."""
    return [_CHANGES[each] for each in _CHANGES if each in variants]


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


@contextmanager
def _eps_hat(_model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Every Adam adds eps before the bias correction: in torch's formula, it is then eps / sqrt(1 - beta2**t)."""
    found = [optimizers[name] for name in adams(optimizers)]
    growing = [_growing_eps([group["eps"] for group in each.param_groups]) for each in found]
    with hooked(each.register_step_pre_hook(grow) for each, grow in zip(found, growing)):
        yield


def _growing_eps(given: Sequence[float]) -> Callable[[Any, Any, Any], None]:
    steps = 0

    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        nonlocal steps
        steps += 1
        for group, value in zip(optimizer.param_groups, given):
            group["eps"] = value / (1 - group["betas"][1] ** steps) ** 0.5

    return before


@contextmanager
def other_decay(names: Sequence[str], _model: nn.Module, optimizers: Optimizers) -> Iterator[None]:
    """Decouple the weight decay of these optimizers, or add it to the gradient where it is decoupled."""
    with ExitStack() as hooks:
        for optimizer in (optimizers[name] for name in names):
            decays = [group.get("weight_decay", 0.0) for group in optimizer.param_groups]
            for group in optimizer.param_groups:
                group["weight_decay"] = 0.0
            hooks.enter_context(hooked([optimizer.register_step_pre_hook(_decaying(decays))]))
        yield


def _decaying(decays: Sequence[float]) -> Callable[[Any, Any, Any], None]:
    def before(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        coupled = is_decoupled(optimizer)
        with torch.no_grad():
            for group, decay in zip(optimizer.param_groups, decays):
                for each in (each for each in group["params"] if each.grad is not None):
                    if coupled:
                        each.grad.add_(each, alpha=decay)
                    else:
                        each.mul_(1 - group["lr"] * decay)

    return before


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
