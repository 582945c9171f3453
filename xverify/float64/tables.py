"""Tables: tensors that the constructor of a module computes and that are no weights, such as the frequencies of an embedding.

The float64 model has them in float64. The perturbed pass uses tables that a constructor computed with the rounding of every
operation: two right formulas of one table differ by its conditioning, which the table itself does not show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn

from .operations import perturbed_arithmetic
from .parametrized import computed_attributes
from .perturbation import Noise

Tables = Mapping[tuple[str, str], Tensor]  # (module, attribute) -> table


def tables(model: nn.Module) -> Tables:
    """The tables of a model: buffers that are not saved with the weights, and tensors that are plain attributes."""
    return {
        (name, key): value
        for name, module in model.named_modules()
        for key, value in [*module.named_buffers(recurse=False), *vars(module).items()]
        if isinstance(value, Tensor)
        and (value.is_floating_point() or value.is_complex())
        and not is_weight(module, key)
    }


def is_weight(module: nn.Module, name: str) -> bool:
    """Whether an attribute of this name is a weight, or computed from weights before every call."""
    return is_saved(module, name) or name in computed_attributes(module)


def is_saved(module: nn.Module, name: str) -> bool:
    """Whether an attribute of this name is saved with the weights, so that every framework has the same values."""
    saved = name in module._parameters or name in module._buffers
    return saved and name not in module._non_persistent_buffers_set


def perturbed_tables(model: nn.Module, build: Callable[[], nn.Module], seed: int) -> Tables:
    """The tables of a model whose constructor computes with perturbations; {} when the model has no tables.

    build: builds the model once more.
    """
    known = tables(model)
    if not known:
        return {}
    with perturbed_arithmetic(Noise(seed)):
        found = tables(build())
    return {key: found[key] for key, table in known.items() if key in found and found[key].shape == table.shape}


@contextmanager
def replaced_tables(model: nn.Module, others: Tables) -> Iterator[None]:
    """Use other tables within the context."""
    modules = {name: model.get_submodule(name) for name, _ in others}
    originals = {(name, key): getattr(modules[name], key) for name, key in others}
    for (name, key), table in others.items():
        setattr(modules[name], key, table)
    try:
        yield
    finally:
        for (name, key), table in originals.items():
            setattr(modules[name], key, table)
