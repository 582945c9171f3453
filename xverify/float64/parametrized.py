"""Weights that a model of torch computes from others: by a weight norm, a spectral norm, or any other parametrization.

torch has two forms. ``torch.nn.utils.parametrizations`` keeps what a weight is computed from in modules below
``layer.parametrizations``. The older ``torch.nn.utils.weight_norm`` and ``spectral_norm`` keep it in the layer itself, and compute
the weight in a hook before every call. A layer of either form is one layer, and the modules that compute its weight are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from .replaced import replaced

INNER = "parametrizations"  # the attribute in which torch keeps the modules that compute a weight
ITERATIONS = 3  # of the power method on drawn vectors; so few that a port with further iterations computes another norm


@dataclass(frozen=True)
class Computed:
    """A weight that a module computes.

    name: of the weight, as that of a plain layer. parts: the names of the tensors in the state that it is computed from.
    hook: what computes it in the older form; None in the newer one.
    """

    name: str
    module: nn.Module
    attribute: str
    parts: tuple[str, ...]
    hook: WeightNorm | SpectralNorm | None = None

    def value(self) -> Tensor:
        """The weight now. In inference mode nothing changes; in training mode a spectral norm makes its iteration first."""
        if isinstance(self.hook, SpectralNorm):
            return self.hook.compute_weight(self.module, do_power_iteration=self.module.training)
        found: Tensor = (
            getattr(self.module, self.attribute) if self.hook is None else self.hook.compute_weight(self.module)
        )
        return found

    def iterating(self) -> list[nn.Module]:
        """The modules whose training mode makes the iterations of a spectral norm; [] for another kind of weight."""
        if self.hook is not None:
            return [self.module] if isinstance(self.hook, SpectralNorm) else []
        chain: Any = self.module.get_submodule(f"{INNER}.{self.attribute}")
        return [each for each in chain if isinstance(each, _SpectralNorm)]


def computed(model: nn.Module) -> list[Computed]:
    """Every weight that a model computes from others."""
    return [each for name, module in model.named_modules() for each in _of_module(f"{name}." if name else "", module)]


def _of_module(prefix: str, module: nn.Module) -> Iterator[Computed]:
    if is_parametrized(module):
        for attribute, chain in module.get_submodule(INNER).named_children():
            parts = tuple(f"{prefix}{INNER}.{attribute}.{key}" for key in chain.state_dict())
            yield Computed(prefix + attribute, module, attribute, parts)
    for hook in module._forward_pre_hooks.values():
        if isinstance(hook, (WeightNorm, SpectralNorm)):
            parts = tuple(f"{prefix}{hook.name}{end}" for end in _ends(hook))
            yield Computed(prefix + hook.name, module, hook.name, parts, hook)


def _ends(hook: WeightNorm | SpectralNorm) -> tuple[str, ...]:
    """The ends of the names of what the older form computes a weight from."""
    return ("_g", "_v") if isinstance(hook, WeightNorm) else ("_orig", "_u", "_v")


def layer_and_weight(parameter: str) -> tuple[str, str]:
    """The layer of a parameter, and the rest of its name: a layer's parametrizations are parts of it."""
    layer, found, rest = parameter.rpartition(f".{INNER}.")
    if not found:
        layer, _, weight = parameter.rpartition(".")
        return layer, weight
    return layer, f"{INNER}.{rest}"


def inner_modules(model: nn.Module) -> set[nn.Module]:
    """The modules that compute weights; they are parts of a layer, and no layers."""
    return {
        inner
        for module in model.modules()
        if is_parametrized(module)
        for inner in module.get_submodule(INNER).modules()
    }


def computed_attributes(module: nn.Module) -> set[str]:
    """The attributes of a module that hold a weight which its own hooks compute."""
    return {each.attribute for each in _of_module("", module) if each.hook is not None}


def own_class(layer: nn.Module) -> type[nn.Module]:
    """The class of a layer, which torch replaces by one of its own when the layer gets a parametrization."""
    found: type[nn.Module] = type(layer).__bases__[0] if is_parametrized(layer) else type(layer)
    return found


def recomputing(layer: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """A layer's ``forward`` for a call without the layer's hooks: the weights that hooks compute are computed first."""
    hooks = [each for each in layer._forward_pre_hooks.values() if isinstance(each, (WeightNorm, SpectralNorm))]
    if not hooks:
        return forward

    def run(*args: Any, **kwargs: Any) -> Any:
        for hook in hooks:
            hook(layer, args)
        return forward(*args, **kwargs)

    return run


# -- plain layers -------------------------------------------------------------------------------------------------------

FOLDED = "_folded_weights"  # the attribute in which a module keeps the names of its folded weights


def fold(model: nn.Module) -> None:
    """Make every computed weight a parameter with its present value, so that its layer is a plain one. The model is changed.

    model: in inference mode.
    """
    with torch.no_grad():
        values = [(each, each.value().detach().clone()) for each in computed(model)]
    for each, _ in values:
        _remove(each)
    for each, value in values:
        each.module.register_parameter(each.attribute, nn.Parameter(value, requires_grad=value.is_floating_point()))
        setattr(each.module, FOLDED, folded_weights(each.module) | {each.attribute})


def _remove(weight: Computed) -> None:
    """Remove what computes a weight from its module."""
    module = weight.module
    if weight.hook is None:
        if is_parametrized(module):  # once for all weights of the module
            module.__class__ = own_class(module)
            del module._modules[INNER]
        return
    for key in [key for key, hook in module._forward_pre_hooks.items() if hook is weight.hook]:
        del module._forward_pre_hooks[key]
    module.__dict__.pop(weight.attribute, None)
    for end in _ends(weight.hook):
        delattr(module, weight.attribute + end)


def folded_weights(layer: nn.Module) -> frozenset[str]:
    """The weights of a layer that were computed, and that ``fold`` made parameters."""
    found: frozenset[str] = getattr(layer, FOLDED, frozenset())
    return found


# -- spectral norms -----------------------------------------------------------------------------------------------------


def iterate(model: nn.Module, times: int = 1) -> None:
    """Make iterations of the power method in every spectral norm, with the weights that are loaded. Modes stay as they are."""
    for each in computed(model):
        modules = each.iterating()
        with torch.no_grad(), _in_mode(modules, training=True):
            for _ in range(times if modules else 0):
                each.value()


def without_iterations(*models: nn.Module) -> AbstractContextManager[None]:
    """Let the spectral norms of models in training mode make no iterations within the context, so that all passes compute alike."""
    modules = [module for model in models for each in computed(model) for module in each.iterating()]
    return _in_mode(modules, training=False)


@contextmanager
def _in_mode(modules: Sequence[nn.Module], training: bool) -> Iterator[None]:
    with ExitStack() as modes:
        for module in modules:
            modes.enter_context(replaced(module, training=training))
        yield
