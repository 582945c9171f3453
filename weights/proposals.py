"""What to declare about a variable that the conversion table does not know, or whose layout does not fit the reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xverify.errors import WeightsError

from .layout import Axes, Shape, fitting
from .names import rename_layers


class Undeclared(WeightsError):
    """A variable whose canonical form is not known.

    module: canonical name of its layer. variable, shape: its name and shape.
    """

    def __init__(self, message: str, module: str, variable: str, shape: Shape) -> None:
        super().__init__(message)
        self.module, self.variable, self.shape = module, variable, shape


def with_proposal(error: Undeclared, expected: Mapping[str, Shape], names: Mapping[str, str]) -> WeightsError:
    """The error with the declaration that makes the variable fit.

    expected: canonical name -> shape of the reference's weights; {} when they are not known. names: the table of names.toml.
    """
    module = rename_layers([error.module], names)[error.module] if error.module else ""
    of_layer = {name: shape for name, shape in expected.items() if name.rpartition(".")[0] == module}
    alike = {name: shape for name, shape in expected.items() if name.rpartition(".")[2] == error.variable}
    several = of_layer or alike
    layouts = {name: found for name, shape in several.items() if (found := fitting(error.shape, shape))}
    if not several:
        return WeightsError(f"{error}; {declaration(error.variable, 'weight', [None])}")
    known = ", ".join(f"{name} {shape}" for name, shape in several.items())
    if not layouts:
        return WeightsError(f"{error}; the reference has {known}, and no order of its axes gives such a shape")
    exact = error.variable if join(module, error.variable) in layouts else ""
    name = next((name for name in layouts if name.rpartition(".")[2] == exact), next(iter(layouts)))
    owner, _, suffix = name.rpartition(".")
    named = "" if owner == module else f'canonical_name = "{owner}" and '
    return WeightsError(
        f"{error}; the reference has {known}; {declaration(error.variable, suffix, layouts[name], named)}"
    )


def declaration(variable: str, suffix: str, layouts: Sequence[Axes], more: str = "") -> str:
    """A clause that says what to declare. layouts: those that fit, the simplest first. more: what comes before it."""
    first, *others = (f'("{suffix}", {_written(axes)})' for axes in layouts)
    text = f'in a layer of your own, declare {more}canonical_weights = {{"{variable}": {first}}}'
    return text + (f" (the shape fits {' and '.join(others)}, too)" if others else "")


def _written(axes: Axes) -> str:
    return f'"{axes}"' if isinstance(axes, str) else repr(axes)


def join(module: str, suffix: str) -> str:
    """A canonical name. module: "" for the model itself."""
    return f"{module}.{suffix}" if module else suffix
