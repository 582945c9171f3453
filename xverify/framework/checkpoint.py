"""The interface of a file of a training run, with weights and the state of an optimizer: what ``Trains.checkpoint`` returns."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import WeightsError
from ..workload.optimizers import Optimizer
from ..workload.recipe import Group
from .training import Training

ADAMS = ("adam", "adamw")  # have the same state, and in some files the same settings
# The names that users give to the two state_dicts of a file.
MODEL = ("model", "model_state_dict", "state_dict")
OPTIMIZER = ("optimizer", "optimizer_state_dict", "optimizer_states")
STEPS = ("step", "steps", "global_step")  # and to the number of steps

Value = float | bool | str
# A field of Optimizer, in torch's terms, or "amsgrad" -> its value. "name" is the optimizer.
Settings = dict[str, Value]


def _same(value: Any) -> Any:
    return value


class Argument(NamedTuple):
    """An argument of a framework's own optimizer that is a field of ``Optimizer``.

    own: its name. to_own, from_own: convert a value of the field to that of the argument, and back.
    """

    own: str
    to_own: Callable[[Any], Any] = _same
    from_own: Callable[[Any], Any] = _same


@dataclass(frozen=True)
class Constructor:
    """How a framework makes one of its optimizers.

    path: of the class or function, for example "keras.optimizers.Adam".
    arguments: field of ``Optimizer`` -> the argument.
    """

    path: str
    arguments: Mapping[str, Argument]

    def says(self, o: Optimizer) -> str:
        """The call with these settings, as a user writes it. Fields of one argument are a tuple."""
        values: dict[str, list[str]] = {}
        for name, argument in self.arguments.items():
            values.setdefault(argument.own, []).append(repr(argument.to_own(settings_of(o)[name])))
        pairs = [f"{own}={each[0] if len(each) == 1 else '(' + ', '.join(each) + ')'}" for own, each in values.items()]
        return f"{self.path}({', '.join(pairs)})"

    def defaults(self, made: Callable[..., Any]) -> Settings:
        """The fields that have a default. made: the class or function itself.

        The learning rate has none: nobody trains with that of a signature, and a wrong one would not show.
        """
        known, found = inspect.signature(made).parameters, Settings()
        for name, argument in self.arguments.items():
            if name == "lr":
                continue
            default = known[argument.own].default if argument.own in known else None
            if default is None and name in ("weight_decay", "momentum"):
                default = 0.0
            if isinstance(default, (bool, int, float)):
                found[name] = argument.from_own(default)
        return found


def settings_of(o: Optimizer) -> dict[str, Any]:
    """The fields of an optimizer, and whether it is AMSGrad."""
    return {**vars(o), "amsgrad": o.recipe.amsgrad}


@dataclass(frozen=True)
class Opened:
    """What the file of a training run says.

    settings: those that the file holds; "name" is among them where it says which optimizer it is.
    groups: of parameters with a learning rate or a weight decay of their own, by the names of the framework.
    steps: the number of steps so far; None: the file does not say it.
    has_weights: whether it holds weights. left: what it holds beside weights and optimizer state, which is not converted.
    kinds: the optimizers whose state it may be, where the file does not say which one; () for any.
    """

    settings: Settings
    groups: tuple[Group, ...] = ()
    steps: int | None = None
    has_weights: bool = True
    left: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()


class Checkpoint:
    """The file in which the users of a framework keep weights and optimizer state, for one model.

    path, given, apart: of the file that is read; a worker sets them before ``open``. given: the settings that the user gives, or
        that the file should have. apart: a file of weights that the user names beside the file.
    constructors: optimizer -> how the framework makes it.
    """

    path: Path
    given: Settings
    apart: Path | None = None
    suffixes: tuple[str, ...] = ()  # how the name of such a file may end
    constructors: Mapping[str, Constructor] = {}

    def open(self, path: Path, model: Any) -> Opened:
        """Read what the file says. Raises WeightsError for a file that cannot be used, and runs no code that it holds."""
        raise NotImplementedError

    def made(self, name: str) -> Callable[..., Any]:
        """The class or function that the constructor of this optimizer names."""
        raise NotImplementedError

    def call(self, o: Optimizer) -> str:
        """How a user makes this optimizer."""
        return self.constructors[o.name].says(o)

    def weights(self) -> Mapping[str, Any] | None:
        """The weights of the opened file, by the framework's own names; None: ``load`` sets them itself, or there are none."""
        return None

    def load(self, model: Any, learner: Training, steps: int) -> None:
        """Put the state of the opened file into the framework's optimizer, as the framework's users do. steps: made so far."""
        raise NotImplementedError

    def save(self, path: Path, model: Any, learner: Training) -> None:
        """Write the present weights and optimizer state, as the framework's users do."""
        raise NotImplementedError


@dataclass
class Fields:
    """Arrays of an optimizer state by parameter, and what is checked about them.

    source: the file, for messages. found: parameter -> field -> array.
    """

    source: Path
    found: dict[str, dict[str, Any]] = field(default_factory=dict)

    def check(self, shapes: Mapping[str, Sequence[int]], names: Sequence[str]) -> None:
        """Raise WeightsError unless every parameter has these fields in its shape. shapes: of the parameters."""
        for parameter, shape in shapes.items():
            own = self.found.get(parameter)
            if own is None:
                raise WeightsError(f"{self.source}: it holds no optimizer state of {parameter}, which the model trains")
            for name in names:
                if name not in own:
                    raise WeightsError(
                        f"{self.source}: the state of {parameter} has no {name}; it has {', '.join(sorted(own))}: it is of "
                        "another optimizer, or of other settings"
                    )
                if tuple(own[name].shape) != tuple(shape):
                    raise WeightsError(
                        f"{self.source}: {name} of {parameter} has the shape {tuple(own[name].shape)}, and the parameter "
                        f"{tuple(shape)}: it is the state of another model, or of other settings"
                    )


def one_count(source: Path, counts: Mapping[str, float]) -> int | None:
    """The number of steps, which must be the same for every parameter; None without any. counts: by parameter."""
    different = sorted(set(counts.values()))
    if len(different) > 1:
        low, high = (
            next(name for name, count in counts.items() if count == each) for each in (different[0], different[-1])
        )
        raise WeightsError(
            f"{source}: {low} has made {different[0]:g} steps and {high} {different[-1]:g}: an optimizer of the other framework "
            "has one counter for all parameters"
        )
    if different and (not math.isfinite(different[0]) or different[0] < 0 or different[0] != int(different[0])):
        raise WeightsError(f"{source}: its number of steps is {different[0]:g}")
    return int(different[0]) if different else None


def entry(stored: Mapping[Any, Any], names: Sequence[str]) -> tuple[Any, str]:
    """The first entry with one of these names, and its name; (None, "") without one."""
    return next(((stored[name], name) for name in names if name in stored), (None, ""))
