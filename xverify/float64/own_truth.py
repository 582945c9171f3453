"""What a user's own training step does, exactly, and the noise floor of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from ..errors import Failed
from ..framework.generators import Draws
from ..framework.own_state import Held, Lazy
from ..verdict.limits import UNIT, growth
from ..verdict.own_step import EXACT, NOISE, START, OwnStepTruth, StateEntry, state_file
from ..weights import npz
from ..weights.canonical import Array
from .own_clipping import noted_clipping
from .own_step import Arrays, Change, Steps, Taken, check_losses, check_weights, no_update, parameters
from .perturbation import Noise
from .precision import SMALLEST

REPEATS = 2  # perturbed drives; with the error of float32 the floor has three measurements
REPEATED = 1e-7  # two float64 runs of one step that differ by more than this share of a change are random


def truths(
    steps: Steps, folder: Path, seed: int, repeats: int, draws: Draws, times: float = 1.0
) -> tuple[list[OwnStepTruth], str]:
    """The exact steps, and where two runs of them differ; "" when they do not.

    draws: in the second run every generator of random numbers gives other numbers, and the seeds that are set are noted here.

    The arrays are written to ``exact_file`` of each step: "after/name", "change/name" and "gradient/key"; and their noise to
    ``noise_file``. What the state holds is written to a ``state_file`` beside each of both.
    """
    measured: list[_Measured] = []
    with noted_clipping() as clips:
        for number, taken in enumerate(steps.drive(started=_start_kept(folder))):
            check_losses(taken.losses, number)
            check_weights(taken.after, number)
            measured.append(_Measured(taken, folder, number, steps))
    if not any(size for each in measured for size in parameters(each.sizes).values()):
        raise Failed(no_update(len(measured)))
    for number, taken in enumerate(steps.drive(inside=draws.other_numbers)):
        place = measured[number].first_change(taken)
        if place:
            return [each.truth(bool(clips)) for each in measured], f"{place}, step {number}"
    _measure(measured, steps, seed, repeats, times)
    return [each.truth(bool(clips)) for each in measured], ""


def write_changed(steps: Steps, folder: Path, change: Change, seed: int, repeats: int) -> None:
    """Write the exact steps of changed code and their noise, as ``truths`` does."""
    driven = enumerate(steps.drive(change=change, started=_start_kept(folder)))
    found = [_Measured(taken, folder, number, steps) for number, taken in driven]
    _measure(found, steps, seed, repeats, change=change)


def _measure(
    found: Sequence[_Measured],
    steps: Steps,
    seed: int,
    repeats: int,
    times: float = 1.0,
    change: Change | None = None,
) -> None:
    """Add the differences of the steps in float32 and of perturbed steps to the exact ones."""
    for each, taken in zip(found, steps.drive(float64=False, change=change)):
        each.add(taken)
    noise = Noise(seed)
    for _ in range(repeats):
        for each, taken in zip(found, steps.drive(noise=noise, times=times, change=change)):
            each.add(taken, repeats)


def _start_kept(folder: Path) -> Callable[[Held], None]:
    """The function that writes what the exact state holds before the first step."""
    return lambda held: npz.save_file(held.arrays, state_file(folder / EXACT, START))


def exact_file(folder: Path, number: int) -> Path:
    """The file of the arrays of an exact step."""
    return folder / f"own-exact-{number}.npz"


def arrays_of(taken: Taken) -> Arrays:
    """The arrays of a step in its file: "after/name", "change/name" and "gradient/n/name"."""
    arrays = {f"after/{name}": array for name, array in taken.after.items()}
    arrays |= {f"change/{name}": array for name, array in taken.changes.items()}
    return arrays | {f"gradient/{key}": array for key, array in taken.gradients.items()}


def noise_file(folder: Path, number: int) -> Path:
    """The file of the rms of the noise of every value of an exact step, by the name of the array after "noise/"."""
    return folder / f"own-noise-{number}.npz"


class _Measured:
    """An exact step, whose arrays are in a file, and the differences of other steps from it.

    folder, number: see ``exact_file``. summed: number of values that a loss may sum up, of its batch.
    precision: of the code. skipped: see OwnStepTruth.
    """

    def __init__(self, exact: Taken, folder: Path, number: int, steps: Steps) -> None:
        self.precision, self.skipped = steps.precision, steps.precision.skipped(number)
        self.exact = Taken(exact.losses, {}, {}, {}, exact.optimizers, exact.backwards)
        self.path, self.noise = exact_file(folder, number), noise_file(folder, number)
        self.state = _MeasuredState(exact.held, state_file(folder / EXACT, number), state_file(folder / NOISE, number))
        self.summed = max(tensor.numel() for tensor in steps.batches[number].values())
        npz.save_file(arrays_of(exact), self.path)
        self.sizes = {name: rms(array) for name, array in exact.changes.items()}
        self.whole = {name: rms(array) for name, array in exact.after.items()}
        self.gradient_sizes = {key: rms(array) for key, array in exact.gradients.items()}
        self.losses = dict.fromkeys(exact.losses, 0.0)
        # The rounding of the results themselves: of a change, that of the weight and of two operations. What is not changed, such
        # as the rows of an embedding that a batch does not use, is not rounded.
        noise = {
            f"change/{name}": np.hypot(exact.after[name] * (UNIT / math.sqrt(3)), 2 * UNIT * array)
            for name, array in exact.changes.items()
        }
        noise |= {f"gradient/{key}": np.abs(array) * (UNIT / math.sqrt(3)) for key, array in exact.gradients.items()}
        least, arrays = SMALLEST[torch.float32], arrays_of(exact)
        self._write({key: (each + least) * (arrays[key] != 0) for key, each in noise.items()})

    def _write(self, noise: Arrays) -> None:
        npz.save_file({f"noise/{key}": np.abs(array).astype(np.float32) for key, array in noise.items()}, self.noise)

    def first_change(self, again: Taken) -> str:
        """Where another float64 run of the step differs: a loss or a weight; "" when it does not."""
        for name, loss in again.losses.items():
            if abs(loss - self.exact.losses.get(name, math.nan)) > REPEATED * abs(loss):
                return f"loss {name!r}"
        exact = npz.OnDisk(self.path)
        self.state.leave_out_random(again.held)
        for name, array in again.changes.items():
            if rms(array - exact[f"change/{name}"]) > REPEATED * self.sizes[name] + 1e-12 * self.whole[name]:
                return name
        return ""

    def add(self, taken: Taken, repeats: int = 1) -> None:
        """Add a step. repeats: number of steps of the same kind, whose mean squares are added."""
        exact, noise = npz.OnDisk(self.path), npz.OnDisk(self.noise)
        for name in self.losses:
            apart = abs(taken.losses[name] - self.exact.losses[name])
            self.losses[name] = max(self.losses[name], apart if math.isfinite(apart) else math.inf)
        found = {f"change/{name}": array for name, array in taken.changes.items()}
        found |= {f"gradient/{key}": array for key, array in taken.gradients.items()}
        added = dict[str, Array]()
        for name in noise:
            key = name.removeprefix("noise/")
            error = (found[key] - exact[key]) / math.sqrt(repeats) if key in found else np.float32(math.inf)
            added[key] = np.hypot(noise[name], error)  # no squares, of which those of small values would be zero
        self._write(added)
        self.state.add(taken.held, repeats)

    def truth(self, clips: bool) -> OwnStepTruth:
        """The record of the step. clips: see OwnStepTruth."""
        exact, rounding = self.exact, growth(self.summed) * UNIT / math.sqrt(3)
        noise = npz.OnDisk(self.noise)
        return OwnStepTruth(
            losses=exact.losses,
            loss_floors={name: max(self.losses[name], rounding * abs(loss)) for name, loss in exact.losses.items()},
            sizes=self.sizes,
            floors={name: rms(noise[f"noise/change/{name}"]) for name in self.sizes},
            gradient_sizes=self.gradient_sizes,
            optimizers=exact.optimizers,
            trained_by={
                name: found for name, values in exact.backwards.items() if (found := _named(values, exact.losses))
            },
            state=self.state.entries,
            clips=clips,
            precision=self.precision.name,
            products=self.precision.products,
            skipped=self.skipped,
        )


class _MeasuredState:
    """What the exact state holds after a step, and the differences of other steps from it. Both are in files.

    Whole numbers have no rounding: their noise is not zero where another step gives them another value.
    """

    def __init__(self, held: Held, path: Path, noise: Path) -> None:
        self.entries, self.path, self.noise = held.entries, path, noise
        npz.save_file(held.arrays, path)
        exact = npz.OnDisk(path)
        npz.save_file(Lazy({name: partial(_rounding, exact, name) for name in exact}), noise)

    def leave_out_random(self, again: Held) -> None:
        """Note what another float64 run of the step gives other values."""
        exact = npz.OnDisk(self.path)

        def says(entry: StateEntry) -> str:
            if entry.says or not exact[entry.path].size:
                return entry.says
            size = rms(exact[entry.path].astype(np.float64))
            if rms(self._apart(exact, again, entry.path)) <= REPEATED * size:
                return entry.says
            return "it is random: two runs of the reference give it other values"

        self.entries = tuple(replace(each, says=says(each)) for each in self.entries)

    def add(self, held: Held, repeats: int) -> None:
        """Add the state of another step; see ``_Measured.add``."""
        exact, noise, added = npz.OnDisk(self.path), npz.OnDisk(self.noise), self.noise.with_suffix(".new")

        def sum_of(name: str) -> Array:
            apart: Array = np.hypot(noise[name], self._apart(exact, held, name) / math.sqrt(repeats))
            return apart.astype(np.float32)

        npz.save_file(Lazy({name: partial(sum_of, name) for name in noise}), added)
        added.replace(self.noise)

    @staticmethod
    def _apart(exact: Mapping[str, Array], held: Held, name: str) -> Array:
        """The difference from an exact array; infinite where the state holds none of its shape."""
        right = exact[name].astype(np.float64)
        found = held.arrays.get(name)
        return np.full(right.shape, np.inf) if found is None or found.shape != right.shape else found - right


def _rounding(exact: Mapping[str, Array], name: str) -> Array:
    """The rounding of the values of an array of the state to float32."""
    array = exact[name]
    scale = UNIT / math.sqrt(3) if array.dtype.kind == "f" else 0.0
    return (np.abs(array.astype(np.float64)) * scale).astype(np.float32)


def _named(values: Sequence[float], losses: Mapping[str, float]) -> str:
    """The names of the returned losses that have one of these values."""
    return ", ".join(
        name for name, loss in losses.items() if any(abs(value - loss) <= 1e-12 * abs(loss) for value in values)
    )


def rms(array: Array) -> float:
    """The root mean square; infinity when a value is not finite."""
    found = float(np.sqrt(np.mean(np.square(array, dtype=np.float64))))
    return found if math.isfinite(found) else math.inf
