"""The loss curve: a subject trains many steps from the first state, and its losses are compared with those of the reference.

A replica is the reference with weights perturbed by one unit in the last place. Rounding alone makes the losses of replicas drift
apart. A subject's curve is judged only for the steps at which the replicas are still close together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failed
from ..reference.build import Prepared, ReferenceProcess
from ..results.records import Curve
from ..results.verdicts import Verdict
from ..weights import npz
from ..worker.messages_training import LossCurve, TrainingState
from ..worker.process import Worker
from ..workload import probe

REPLICAS = 3
FIRST = 4  # steps; when replicas are apart by then, they are not trained further
BAND_WIDTHS = 10  # a loss may differ from the reference's by this many times the spread of the replicas
SPREAD = 1e-3  # as a share of the loss: when replicas are farther apart, a curve is no longer judged


@dataclass(frozen=True)
class Band:
    """The reference's losses, step by step, and the lowest and highest loss of the reference and its replicas."""

    losses: tuple[float, ...] = ()
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    @property
    def judged(self) -> int:
        """Number of steps that are judged: those before rounding alone has driven the replicas apart."""
        steps = enumerate(zip(self.low, self.high, self.losses))
        return next(
            (step for step, (low, high, right) in steps if not high - low <= SPREAD * abs(right)), len(self.low)
        )


def band(
    process: ReferenceProcess,
    prepared: Prepared,
    start: TrainingState,
    count: int,
    where_it_diverges: Callable[[Worker, int], str],
) -> Band:
    """Draw the reference's loss curve of ``count`` steps from ``start``, and the band of its replicas.

    where_it_diverges: called with a worker and a step when a loss is not finite; returns the end of a sentence with the layer.
    Raises Failed when the reference's own loss is not finite.
    """
    worker, seed = process.worker, process.request.seed
    losses = worker.ask(LossCurve(state=start, steps=count)).losses
    last = len(losses) - 1
    if not math.isfinite(losses[last]):
        assert process.request.optimizer is not None
        where = where_it_diverges(worker, last)
        if not last:  # no update was made
            raise Failed(f"the loss is {losses[last]} at step 0{where}; it is not defined for the first outputs")
        raise Failed(
            f"its own training diverges: the loss is {losses[last]} at step {last}{where}; a smaller --lr than "
            f"{process.request.optimizer.lr:g} may help"
        )
    replicas = []
    for index in range(REPLICAS):
        path = process.space / f"replica-{index}.npz"
        npz.save_file(probe.perturb(npz.load_file(Path(prepared.weights)), seed + index), path)
        replicas.append(TrainingState(weights=str(path), optimizer_state=start.optimizer_state, steps=start.steps))
    found = Band(losses)
    for steps in dict.fromkeys((FIRST, count)):
        others = [worker.ask(LossCurve(state=each, steps=steps)).losses for each in replicas]
        columns = list(zip(losses, *others))
        found = Band(losses, tuple(min(column) for column in columns), tuple(max(column) for column in columns))
        if found.judged < len(columns):
            break
    if process.request.effort == "quick":  # a quick run draws no more steps than the replicas made
        return Band(losses[: len(found.low)], found.low, found.high)
    return found


def judge_curve(
    band: Band, losses: Sequence[float], differences: Sequence[str], where_it_diverges: Callable[[int], str]
) -> Curve:
    """Judge a subject's losses for the steps at which rounding alone leaves the replicas together.

    differences: the names of known differences of the framework, which may explain a curve that leaves the band.
    where_it_diverges: called with a step when a loss is not finite; returns the end of a sentence with the layer.
    """
    judged, last = band.judged, len(losses) - 1
    spreads = [high - low for low, high in zip(band.low, band.high)]
    apart = [
        step
        for step, (loss, right, spread) in enumerate(zip(losses[:judged], band.losses, spreads))
        if not abs(loss - right) <= max(SPREAD * abs(right), BAND_WIDTHS * spread)
    ]
    says, verdict = "", Verdict.EQUAL
    if not math.isfinite(losses[last]) and math.isfinite(band.losses[min(len(losses), len(band.losses)) - 1]):
        verdict = Verdict.INVALID
        says = f"the loss is {losses[last]} at step {last}{where_it_diverges(last)}"
    elif apart:
        verdict = Verdict.DRIFT
        says = f"at step {apart[0]} it differs from the reference's by more than {SPREAD:g} of the loss"
        says += f" ({', '.join(differences)})" if differences else ""
    return Curve(tuple(losses), band.losses, band.low, band.high, judged, verdict, says)
