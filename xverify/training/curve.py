"""The loss curve: a subject trains many steps from the first state, and its losses are compared with those of the reference.

A replica is the reference with weights perturbed by one unit in the last place of the precision in which it computes. Rounding
alone makes the losses of replicas drift apart. A subject's curve is judged only for the steps at which the band of the replicas is
narrower than the change of the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from ..errors import Failed
from ..reference.build import Prepared, ReferenceProcess
from ..results.records import Curve
from ..results.verdicts import Verdict
from ..verdict.limits import UNITS
from ..weights import npz
from ..workload import probe
from ..workload.request import Request
from .free_run import FreeRun, broken
from .learner import Learner

# By effort: number of steps of the loss curve, without --steps.
STEPS = {"quick": 10, "standard": 50, "rigorous": 50}
# Seconds. When a step of the reference takes longer, a quick run judges the first state alone and draws no curve.
LONG_STEP = 1.5
REPLICAS = 3
FIRST = 4  # steps; when the band says nothing by then, the replicas are not trained further
BAND_WIDTHS = 10  # a loss may differ from the reference's by this many times the spread of the replicas
# Precision -> share of the loss: a difference this small is never reported.
SPREADS = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class Band:
    """The reference's losses, step by step, and the lowest and highest loss of the reference and its replicas.

    spread: see SPREADS.
    batches: number of batches, which the steps use in turn.
    """

    losses: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()
    spread: float = SPREADS["float32"]
    batches: int = 1

    def beside(self, replicas: Sequence[Sequence[float]]) -> Band:
        """The same with the range of the reference's losses and those of its replicas."""
        columns = list(zip(self.losses, *replicas))
        return replace(self, low=tuple(map(min, columns)), high=tuple(map(max, columns)))

    @property
    def spreads(self) -> list[float]:
        """For each step, the widest that the band has been until then: curves that cross are no sign that rounding is small."""
        return list(accumulate((high - low for low, high in zip(self.low, self.high)), _widest))

    @property
    def changes(self) -> list[float]:
        """For each step, by how much training has changed the loss of a batch until then, at most."""
        return list(accumulate((abs(loss - self.losses[i % self.batches]) for i, loss in enumerate(self.losses)), max))

    @property
    def judged(self) -> int:
        """Number of steps that are judged: those before the band says nothing more.

        It says nothing when rounding alone has driven the replicas apart by more than ``spread``, and BAND_WIDTHS times their
        distance is as much as training has changed the loss.
        """
        steps = enumerate(zip(self.spreads, self.losses, self.changes))
        for step, (spread, loss, change) in steps:
            if not (spread <= self.spread * abs(loss) or BAND_WIDTHS * spread < change):
                return step
        return len(self.low)


def _widest(widest: float, new: float) -> float:
    """The larger of two widths; the new one when it is NaN."""
    return widest if new <= widest else new


class CurveComparison:
    """Draws the curves of the reference's losses once, and those of each subject when it is compared.

    train: how it trains. precision: in which models compute. bands: by the name of the loss.
    """

    def __init__(
        self, process: ReferenceProcess, prepared: Prepared, train: FreeRun, precision: str = "float32"
    ) -> None:
        self.process, self.prepared, self.train, self.precision = process, prepared, train, precision
        self.bands: dict[str, Band] = {}

    def prepare(self, count: int, diverges: Callable[[int, float], str]) -> None:
        """Draw the curves of ``count`` steps, and the bands of the replicas.

        diverges: called with a step and a loss that is not finite; returns a sentence on it. Raises Failed with this sentence.
        """
        self.process.phase("its loss curve, and those of replicas whose weights differ in the last place")
        request, worker = self.process.request, self.process.worker
        losses = self.train(worker, self.prepared.weights, count, ())
        wrong = broken(losses)
        if wrong is not None:
            raise Failed(diverges(wrong[1], losses[wrong[0]][-1]))
        spread, replicas = SPREADS[self.precision], self._replicas()
        found = {name: Band(each, spread=spread, batches=request.cases) for name, each in losses.items()}
        for steps in dict.fromkeys((min(FIRST, count), count)):
            others = [self.train(worker, each, steps, ()) for each in replicas]
            found = {name: each.beside([other[name] for other in others]) for name, each in found.items()}
            if all(each.judged < len(each.low) for each in found.values()):
                break
        if request.effort == "quick" and request.steps is None:  # no more steps are drawn than the replicas made
            found = {name: replace(each, losses=each.losses[: len(each.low)]) for name, each in found.items()}
        self.bands = found

    def _replicas(self) -> list[Path]:
        """The files of the weights of the replicas."""
        files = [self.process.space / f"replica-{index}.npz" for index in range(REPLICAS)]
        for index, path in enumerate(files):
            seed, unit = self.process.request.seed + index, UNITS.get(self.precision, 0.0)
            npz.save_file(probe.perturb(npz.OnDisk(self.prepared.weights), seed, unit), path)
        return files

    def compare(
        self, learner: Learner, differences: Sequence[str], where_it_diverges: Callable[[int], str]
    ) -> tuple[Curve, ...]:
        """Train a subject, and judge each of its losses that the reference has, too. Arguments: see ``judge_curve``."""
        count = max((len(band.losses) for band in self.bands.values()), default=0)
        if not count:
            return ()
        self.process.listener.phase(learner.label, f"its loss curve, {count} steps")
        losses = self.train(learner.worker, self.prepared.weights, count, ())
        return tuple(
            replace(judge_curve(band, losses[name], differences, where_it_diverges), loss=name)
            for name, band in self.bands.items()
            if name in losses
        )


def steps_of_curve(request: Request) -> int:
    """The number of steps of the loss curve that was asked for."""
    return request.steps or STEPS[request.effort]


def too_long(request: Request, seconds: float, left: float | None, quick: bool) -> str:
    """Why there is no loss curve and only the first state is judged: there is no time; "" where there is.

    seconds: duration of a step. left: seconds until --max-seconds is over; None without a limit. quick: whether a step of
    over LONG_STEP seconds is too long.
    """
    if left is not None and left <= seconds * (1 + REPLICAS) * steps_of_curve(request):
        says = f"--max-seconds {request.max_seconds:g} left no time for the loss curve and for later steps"
        return says + (", nor for --seeds" if request.seeds else "")
    if quick and seconds > LONG_STEP:
        return (
            f"a step of the reference takes {seconds:.0f} s, too long for a quick run: --effort standard draws the curve and "
            "checks later steps, too"
        )
    return ""


def judge_curve(
    band: Band, losses: Sequence[float], differences: Sequence[str], where_it_diverges: Callable[[int], str]
) -> Curve:
    """Judge a subject's losses for the steps at which rounding alone leaves the replicas together.

    differences: the names of known differences of the framework, which may explain a curve that leaves the band.
    where_it_diverges: called with a step when a loss is not finite; returns the end of a sentence with the layer.
    """
    judged, last = band.judged, len(losses) - 1
    apart = [
        (step, abs(loss - right), max(band.spread * abs(right), BAND_WIDTHS * spread))
        for step, (loss, right, spread) in enumerate(zip(losses[:judged], band.losses, band.spreads))
        if not abs(loss - right) <= max(band.spread * abs(right), BAND_WIDTHS * spread)
    ]
    says, verdict = "", Verdict.EQUAL
    if not math.isfinite(losses[last]) and math.isfinite(band.losses[min(len(losses), len(band.losses)) - 1]):
        verdict = Verdict.INVALID
        says = f"the loss is {losses[last]} at step {last}{where_it_diverges(last)}"
    elif apart:
        verdict = Verdict.DRIFT
        step, distance, limit = apart[0]
        says = (
            f"at step {step} the loss is {losses[step]:.6g} and the reference's {band.losses[step]:.6g}: {distance:.2g} apart, "
            f"where rounding alone explains at most {limit:.2g}"
        )
        says += f" ({', '.join(differences)})" if differences else ""
    return Curve(tuple(losses), band.losses, band.low, band.high, judged, verdict, says)
