"""The mistakes that a mutation makes in a user's own training step, and how much each of them changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ..float64.own_changes import planted
from ..float64.own_step import Steps
from ..float64.own_truth import arrays_of, exact_file, noise_file, rms
from ..framework.own_mistake import FACTOR, NOT_ZEROED, SCALED, SETTING, SKIPPED, UNCLIPPED, OwnMistake
from ..weights import npz

# Setting -> its values in a wrong port, of which the first is taken that differs from the right one. Explanations try all of them.
VALUES = {
    "beta1": (0.9, 0.5),
    "beta2": (0.99, 0.9),
    "eps": (1e-5, 1e-7),
    "momentum": (0.9, 0.5),
    "alpha": (0.9, 0.99),
    "weight_decay": (0.0,),
}
RATE = 1.1  # times the right learning rate


def mistakes(steps: Steps, folder: Path) -> list[tuple[OwnMistake, float]]:
    """Every mistake that changes the reference's steps, and the largest change of a weight or gradient, in noise floors.

    folder: of the exact steps; see ``truths``.
    """
    return [(each, visible) for each in _possible(steps) if (visible := _visible(steps, each, folder))]


def _possible(steps: Steps) -> Iterator[OwnMistake]:
    """The mistakes that can be made with the optimizers of a step."""
    optimizers = steps.optimizers()
    for name, each in optimizers.items():
        of = f", optimizer {name!r}" if name else ""
        yield from _in_settings(name, of, each.param_groups[0])
        yield OwnMistake(f"gradients not zeroed{of}", "gradients", "not zeroed", NOT_ZEROED, name)
    yield OwnMistake("clipping missing", "gradients", "clipping is missing", UNCLIPPED)
    yield OwnMistake(f"loss times {FACTOR}", "gradients", f"it is {FACTOR} times the right one", SCALED)
    updated = next((name for taken in steps.drive() for name in taken.optimizers), "")
    if updated:
        yield OwnMistake("parameter not updated", "update", "is not changed by the step", SKIPPED, parameter=updated)


def _in_settings(name: str, of: str, group: Mapping[str, Any]) -> Iterator[OwnMistake]:
    """The mistakes in the settings of one optimizer. of: the words for it. group: its first parameter group."""
    rate = group.get("lr")
    if isinstance(rate, float) and rate:
        yield OwnMistake(
            f"other learning rate{of}", "update", "behaves as learning rate", SETTING, name, "lr", RATE * rate
        )
    right = dict(zip(("beta1", "beta2"), group.get("betas", ()))) | {
        key: group[key] for key in VALUES if group.get(key)
    }
    for setting, value in right.items():
        wrong = next(each for each in VALUES[setting] if each != value)
        label = setting.replace("_", " ")
        says = f"behaves as {label} {wrong:g}"
        yield OwnMistake(f"other {label}{of}", "update", says, SETTING, name, setting, wrong)


def _visible(steps: Steps, mistake: OwnMistake, folder: Path) -> float:
    """The largest change of a weight or gradient by a mistake, in noise floors; 0.0 where the code does not run with it."""
    largest = 0.0
    try:
        for number, taken in enumerate(steps.drive(change=partial(planted, mistake))):
            exact, noise = npz.OnDisk(exact_file(folder, number)), npz.OnDisk(noise_file(folder, number))
            arrays = arrays_of(taken)
            for key in (key.removeprefix("noise/") for key in noise):
                floor = rms(noise[f"noise/{key}"])
                if key in arrays and floor:
                    largest = max(largest, rms(arrays[key] - exact[key]) / floor)
    except Exception:  # the user's code may not run with this mistake in it
        return 0.0
    return largest
