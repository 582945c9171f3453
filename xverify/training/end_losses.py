"""The end losses: every subject trains from several seeds, and its end losses are compared with the reference's by statistics.

A seed draws the initial weights and the order of the batches, the same for the reference and for every subject. The end loss is
the mean of the last steps. What is compared is the mean of the differences, paired by seed, with its Student-t interval. That is
a statistical comparison: it shows differences that add up over many steps, and it proves no equality.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess, is_statistic
from ..results.records import EndLosses
from ..results.verdicts import EndVerdict
from ..timing.statistics import interval
from ..weights import npz
from ..weights.canonical import Changed
from ..workload import probe
from .free_run import FreeRun, Losses, broken

STEPS = 100  # of each training, without --steps
TAIL = 10  # the end loss is the mean of one step in so many, the last ones
LEAST = 2  # seeds of which an interval can be computed
MARGIN = 0.01  # a difference is too small to matter below this share of the end loss, and of what training has changed


@dataclass(frozen=True)
class SeedTraining:
    """A training of the reference from one seed.

    weights: the file of the weights before the first step. order: the index of the batch of each step. losses: of the reference.
    """

    seed: int
    weights: Path
    order: tuple[int, ...]
    losses: Losses


class EndLossComparison:
    """Trains the reference once from every seed, and each subject when it is compared."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared, train: FreeRun) -> None:
        self.process, self.prepared, self.request, self.train = process, prepared, process.request, train
        self.steps = self.request.steps or STEPS
        self.last = min(self.steps, max(self.request.cases, self.steps // TAIL))
        self.trainings: list[SeedTraining] = []
        self.diverged: list[int] = []  # the seeds with which the reference's own loss is not finite
        self.stopped = ""

    def prepare(self, left: float | None) -> None:
        """Train the reference from every seed. left: seconds until --max-seconds is over; None without a limit."""
        request, begun = self.request, time.monotonic()
        count = request.seeds or 0
        for index in range(count):
            self.process.phase(f"training from seed {index + 1} of {count}, {self.steps} steps")
            self._train(request.seed + index)
            spent = time.monotonic() - begun
            if (
                left is not None
                and index + 1 < count
                and left < spent + (1 + len(request.subjects)) * spent / (index + 1)
            ):
                self.stopped = f"--max-seconds {request.max_seconds:g} left time for {index + 1} of {count} seeds"
                break

    def _train(self, seed: int) -> None:
        """Train the reference from one seed."""
        weights, order = self._weights(seed), batch_order(self.steps, self.request.cases, seed)
        losses = self.train(self.process.worker, weights, self.steps, order)
        if broken(losses) is None:
            self.trainings.append(SeedTraining(seed, weights, order, losses))
        else:
            self.diverged.append(seed)

    def _weights(self, seed: int) -> Path:
        """The initial weights of a seed. Weights that the user gave, and running statistics, are those of the run."""
        if self.request.weights is not None:
            return self.prepared.weights
        path = self.process.space / f"weights-of-seed-{seed}.npz"
        arrays, drawn = npz.OnDisk(self.prepared.weights), probe.Weights(self.prepared.shapes, seed)
        kept = [name for name in arrays if is_statistic(name, arrays)]
        values = {name: (arrays.shape(name), partial(arrays.__getitem__, name)) for name in kept}
        npz.save_file(Changed(drawn, {name: name for name in arrays if name not in values}, values), path)
        return path

    def compare(self, label: str, worker: Worker, differences: Sequence[str]) -> tuple[EndLosses, ...]:
        """Train a subject from every seed, and compare its end losses: each that the reference has, too.

        differences: the names of known differences of the framework, which may explain other end losses.
        """
        found = list[Losses]()
        for index, each in enumerate(self.trainings):
            self.process.listener.phase(
                label, f"training from seed {index + 1} of {len(self.trainings)}, {self.steps} steps"
            )
            found.append(self.train(worker, each.weights, self.steps, each.order))
        names = self.trainings[0].losses if self.trainings else ("",)
        common = [name for name in names if all(name in losses for losses in found)]
        return tuple(self._judge(name, [losses[name] for losses in found], differences) for name in common)

    def _judge(self, name: str, found: Sequence[Sequence[float]], differences: Sequence[str]) -> EndLosses:
        """Compare one end loss. name: of the loss. found: of the subject, by seed and step."""
        seeds, reference = [each.seed for each in self.trainings], [each.losses[name] for each in self.trainings]
        judged = judge_end_losses(seeds, found, reference, self.last, self.request.cases)
        says = judged.says
        if differences and judged.verdict in (EndVerdict.HIGHER, EndVerdict.LOWER):
            says += f" ({', '.join(differences)})"
        if self.diverged:
            says += (
                f"; the reference itself diverges with seed {', '.join(map(str, self.diverged))}, which is not compared"
            )
        if self.request.weights is not None:
            says += "; the weights are given, so that the seeds draw the order of the batches alone"
        says += f"; {self.stopped}" if self.stopped else ""
        if name:
            says = f"loss {name!r}: {says}"
        return replace(judged, steps=self.steps, says=says, loss=name)


def batch_order(steps: int, batches: int, seed: int) -> tuple[int, ...]:
    """The index of the batch of each step: every batch once in each pass, in an order that is drawn from the seed."""
    random = np.random.default_rng([seed, batches])
    passes = [random.permutation(batches) for _ in range(math.ceil(steps / batches))]
    return tuple(int(index) for index in np.concatenate(passes)[:steps])


def judge_end_losses(
    seeds: Sequence[int],
    found: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    last: int,
    batches: int,
) -> EndLosses:
    """Compare the end losses of a subject with the reference's.

    seeds: of the trainings. found, reference: the losses of each training, step by step; those of the reference are finite.
    last: number of the last steps whose mean is the end loss. batches: number of batches in one pass.
    """
    steps = len(reference[0]) if reference else 0
    ends = tuple(statistics.fmean(losses[-last:]) for losses in reference)
    own = tuple(statistics.fmean(losses[-last:]) if math.isfinite(losses[-1]) else math.nan for losses in found)
    judged = EndLosses(steps, last, tuple(seeds), own, ends, EndVerdict.UNDECIDED)
    broken = next(((seed, each) for seed, each in zip(seeds, found) if not math.isfinite(each[-1])), None)
    if broken is not None:
        seed, losses = broken
        says = f"with seed {seed} the loss is {losses[-1]} at step {len(losses) - 1}; the reference's stays finite"
        return replace(judged, verdict=EndVerdict.DIVERGED, says=f"end losses DIVERGED: {says}")
    if len(seeds) < LEAST:
        return replace(
            judged, says=f"end losses undecided: an interval needs {LEAST} seeds, and there are {len(seeds)}"
        )
    spread = interval([a - b for a, b in zip(own, ends)])
    size = abs(statistics.fmean(ends))
    change = abs(statistics.fmean(statistics.fmean(losses[:batches]) for losses in reference) - statistics.fmean(ends))
    margin = MARGIN * min(size, change)
    verdict = _verdict(spread.low, spread.high, margin)
    says = _says(verdict, spread.mean, spread.low, spread.high, margin)
    of = f" (the reference's mean is {statistics.fmean(ends):.4g}; {len(seeds)} seeds, mean of the last {last} of {steps} steps)"
    return replace(
        judged,
        verdict=verdict,
        difference=spread.mean,
        low=spread.low,
        high=spread.high,
        margin=margin,
        says=says + of,
    )


def _verdict(low: float, high: float, margin: float) -> EndVerdict:
    """low, high: the interval of the difference. margin: the difference that is too small to matter."""
    if max(abs(low), abs(high)) <= margin:
        return EndVerdict.SAME
    if low > 0:
        return EndVerdict.HIGHER
    return EndVerdict.LOWER if high < 0 else EndVerdict.UNDECIDED


def _says(verdict: EndVerdict, mean: float, low: float, high: float, margin: float) -> str:
    """The verdict in words."""
    if verdict == EndVerdict.SAME:
        return f"end losses SAME within ±{max(abs(low), abs(high)):.2g}"
    if verdict == EndVerdict.UNDECIDED:
        return (
            f"end losses undecided: the difference is between {low:.2g} and {high:.2g}, and one of {margin:.2g} would matter; "
            "more seeds narrow the interval"
        )
    return f"end losses {verdict} by {abs(mean):.2g} ± {(high - low) / 2:.2g}"
