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
from ..messages.training import LossCurve, TrainingState
from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess
from ..results.records import Curve
from ..results.verdicts import Verdict
from ..verdict.limits import UNITS
from ..weights import npz
from ..workload import probe
from ..workload.optimizers import Optimizer

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


def band(
    process: ReferenceProcess,
    prepared: Prepared,
    optimizer: Optimizer,
    start: TrainingState,
    count: int,
    where_it_diverges: Callable[[Worker, int], str],
) -> Band:
    """Draw the reference's loss curve of ``count`` steps from ``start``, and the band of its replicas.

    where_it_diverges: called with a worker and a step when a loss is not finite; returns the end of a sentence with the layer.
    Raises Failed when the reference's own loss is not finite.
    """
    request, worker = process.request, process.worker
    losses = worker.ask(LossCurve(state=start, steps=count))
    last = len(losses) - 1
    if not math.isfinite(losses[last]):
        where = where_it_diverges(worker, last)
        if not last:  # no update was made
            raise Failed(f"the loss is {losses[last]} at step 0{where}; it is not defined for the first outputs")
        raise Failed(
            f"its own training diverges: the loss is {losses[last]} at step {last}{where}; a smaller --lr than "
            f"{optimizer.lr:g} may help"
        )
    precision = optimizer.recipe.precision
    replicas = []
    for index in range(REPLICAS):
        path = process.space / f"replica-{index}.npz"
        perturbed = probe.perturb(npz.OnDisk(Path(prepared.weights)), request.seed + index, UNITS.get(precision, 0.0))
        npz.save_file(perturbed, path)
        replicas.append(TrainingState(weights=str(path), optimizer_state=start.optimizer_state, steps=start.steps))
    curve = Band(losses, spread=SPREADS[precision], batches=request.cases)
    for steps in dict.fromkeys((min(FIRST, count), count)):
        others = [worker.ask(LossCurve(state=each, steps=steps)) for each in replicas]
        columns = list(zip(losses, *others))
        low, high = (tuple(end(column) for column in columns) for end in (min, max))
        curve = replace(curve, low=low, high=high)
        if curve.judged < len(columns):
            break
    if request.effort == "quick" and request.steps is None:  # a quick run draws no more steps than the replicas made
        return replace(curve, losses=losses[: len(curve.low)])
    return curve


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
