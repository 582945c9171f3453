"""The settings of an optimizer whose state is carried to another framework: what its file, its user and its framework say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import UsageError, nearest
from ..framework.checkpoint import settings_of
from ..messages.checkpoint import CheckpointOpened
from ..workload.optimizers import Optimizer, optimizer
from ..workload.recipe import Recipe

Value = float | bool | str
COUNTED = ("adam", "adamw", "adafactor")  # the formulas that need the number of steps


def complete(
    file: Path, settings: Mapping[str, Value], opened: CheckpointOpened
) -> tuple[Optimizer, dict[str, Value], int]:
    """The settings of the file and of the user, those that neither says, and the number of steps so far."""
    given = dict(settings)
    step = given.pop("step", None)
    _check_given(file, given, step, opened)
    known = {**opened.settings, **{key: value for key, value in given.items() if key not in opened.settings}}
    if not known.get("name"):
        raise UsageError(f"{file} does not say which optimizer its state is of: give --optimizer NAME")
    assumed = {key: value for key, value in (opened.defaults or {}).items() if key not in known}
    known = {**assumed, **known}
    name = str(known.pop("name"))
    amsgrad = bool(known.pop("amsgrad", False))
    if "lr" not in known:
        raise UsageError(f"{file} does not say the learning rate: give it with --set lr=X")
    base = optimizer(name, recipe=Recipe(groups=opened.groups, amsgrad=amsgrad))
    base = replace(base, weight_decay=0.0)
    if step is None and opened.steps is None and name in COUNTED:
        raise UsageError(
            f"{file} does not say how many steps were made, on which those of {name} depend: give --set step=N"
        )
    # Without a number, 1 stands for a training that has begun.
    steps = opened.steps if opened.steps is not None else int(step) if step is not None else 1
    return replace(base, **{key: known[key] for key in known if hasattr(base, key)}), assumed, steps  # type: ignore[arg-type]


def _check_given(file: Path, given: Mapping[str, Value], step: Value | None, opened: CheckpointOpened) -> None:
    """Raise UsageError for a setting of the user that is none, or that the file contradicts. step: the number of steps."""
    known = {key: value for key, value in settings_of(Optimizer()).items() if isinstance(value, (bool, float))}
    for key, value in given.items():
        if key != "name" and key not in known:
            raise UsageError(
                f"--set {key}: there is no such setting{nearest(key, known)} Known: step, {', '.join(known)}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise UsageError(f"--set {key}={value}: it must be a finite number")
        said = opened.settings.get(key, value)
        if not _same(said, value):
            raise UsageError(
                f"--optimizer {value}: {file} holds the state of {said}; leave the option out"
                if key == "name"
                else f"--set {key}={value}: {file} says {said}; leave it out, because the state belongs to that"
            )
    if step is not None and (isinstance(step, (bool, str)) or step < 1 or step != int(step)):
        raise UsageError(f"--set step={step}: it must be a whole number above 0")
    if step is not None and opened.steps is not None and step != opened.steps:
        raise UsageError(f"--set step={step:g}: {file} says {opened.steps}; leave it out")


def other_settings(path: Path, opened: CheckpointOpened, own: Optimizer) -> list[str]:
    """The settings of a file of the other framework that are not as they should be. Raises UsageError for another optimizer."""
    name = opened.settings.get("name", own.name)
    if name != own.name:
        raise UsageError(f"{path} holds the state of {name}, and that of {own.name} is expected")
    of_groups = ("lr", "weight_decay") if own.recipe.groups else ()
    wanted = settings_of(own)
    return [
        f"{key} is {value} in {path}, and should be {wanted[key]}"
        for key, value in opened.settings.items()
        if key not in of_groups and not _same(value, wanted[key])
    ]


def _same(one: Value, other: Value) -> bool:
    """Whether two values of a setting are the same, up to float32."""
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isclose(one, other, rel_tol=1e-6)
    )
