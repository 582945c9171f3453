"""The reference of a run whose model files make their own training step: its states, its exact steps and their noise."""

from __future__ import annotations

import math
import shutil
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from ..errors import Failed, UsageError
from ..messages.own_step import ComputeOwnTruth, PrepareOwnStep, TrainOwnSteps
from ..messages.training import PrepareTraining
from ..reference.build import Prepared, ReferenceProcess
from ..verdict.own_step import OwnStepTruth
from .checks import MORE_ROUNDING
from .curve import LONG_STEP, CurveComparison, steps_of_curve, too_long
from .end_losses import EndLossComparison
from .free_run import by_own_step
from .own_exact import ChangedSteps, ExactSteps
from .ranks import NO_CURVE

STEPS = {"quick": 3, "standard": 6, "rigorous": 12}  # by effort: number of steps that are compared, without --steps
UPDATES = 2  # compared steps that must change a weight, where steps are short; otherwise one
# Bytes of each value of the weights in a step: weights before it, exact weights after it, changes and gradients and the noise of
# two; and of each subject, weights after its timed and its watched step, and gradients.
BYTES, BYTES_OF_SUBJECT = 4 + 3 * 8 + 2 * 4, 3 * 4
MOST_STEPS = 32  # that are compared without --steps, where too few of the first ones change a weight

Own = TypeVar("Own", bound="ReferenceSteps")


class ReferenceSteps:
    """Makes the steps of the reference. Its states and exact steps are computed once and kept in files."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared) -> None:
        self.process, self.prepared = process, prepared
        self.request, self.worker, self.space = process.request, process.worker, process.space
        self.layers: tuple[str, ...] = ()
        self.files: tuple[str, ...] = ()
        self.few = False  # whether steps are so long that little is done
        self.truths: tuple[OwnStepTruth, ...] = ()
        self.random = ""
        self.curves = CurveComparison(process, prepared, by_own_step)
        self.no_curve = ""
        self.end_losses: EndLossComparison | None = None
        self._coarse: tuple[OwnStepTruth, ...] = ()
        self.exact = ExactSteps(self.space)
        self.changed = ChangedSteps(process, prepared, (), False)
        self.lowered = ""  # see ``at``
        self._lower: dict[str, Any] = {}  # by the precision
        self.parts: tuple[int, ...] = ()  # see ``apart``
        self._divided: dict[tuple[int, ...], Any] = {}  # by the parts

    def prepare(self, curve: bool = True, seconds: float = 0.0, left: float | None = None) -> None:
        """Train the reference, and compute its steps in float64.

        curve: whether to draw the loss curves. seconds: duration of a step of the reference; 0.0 when it is not known.
        left: seconds until --max-seconds is over.
        Raises Failed when the reference's step cannot be used, and UsageError when the disk has no space for so many steps.
        """
        asked = self.request.steps
        quick = self.request.effort == "quick" and not (asked or self.request.seeds)
        self.no_curve = too_long(self.request, seconds, left, quick)
        self.few = (quick and seconds > LONG_STEP) or (left is not None and left < 20 * seconds)
        if asked:
            self._check_space(asked)
        self.process.phase("its own training steps in float32, then in float64, and their noise")
        question = TrainOwnSteps(
            weights=str(self.prepared.weights),
            inputs=str(self.prepared.training),
            steps=1 if self.few else asked or STEPS[self.request.effort],
            folder=str(self.space),
            updates=1 if asked or self.few else UPDATES,
            most=asked or MOST_STEPS,
        )
        self.files = self.worker.ask(question)
        self.changed = ChangedSteps(self.process, self.prepared, self.files, self.few)
        reply = self.worker.ask(self._truth(self.space, once=self.few))
        self.truths = reply.truths
        if reply.random:
            place = f"two runs of its train_step from one state first differ in {reply.random}"
            self.random = f"the reference is random: {place}. {reply.drawn}"
        elif self.prepared.random:
            self.random = self.prepared.random
        elif curve and not self.no_curve:
            self._prepare_curves(seconds, quick)

    def _check_space(self, steps: int) -> None:
        """Raise UsageError where the temporary folder has no space for the arrays of so many steps."""
        values = sum(math.prod(shape) for shape in self.prepared.shapes.values())
        processes = self.request.ranks + (not self.request.no_timing) if self.request.ranks else 1  # of each subject
        needed = steps * values * (BYTES + len(self.request.subjects) * processes * BYTES_OF_SUBJECT)
        free = shutil.disk_usage(self.space).free
        if needed > free:
            raise UsageError(
                f"--steps {steps}: the arrays of these steps need {needed / 1e9:.3g} GB, and {self.space.parent} has "
                f"{free / 1e9:.3g} GB left: name fewer steps, or set TMPDIR to a larger disk"
            )

    def _prepare_curves(self, seconds: float, quick: bool) -> None:
        """Make the reference ready for free trainings in float32, and draw its loss curves. Arguments: see ``too_long``.

        Raises Failed where its own training diverges and --seeds asks for it.
        """
        assert self.request.optimizer is not None
        training = PrepareTraining(
            inputs=str(self.prepared.training), mode="eager", optimizer=self.request.optimizer, match=False
        )
        second_step = self.worker.ask(PrepareOwnStep(training)).second_step_seconds
        self.no_curve = too_long(self.request, seconds or second_step, None, quick)
        self.curves.precision = self.truths[0].precision
        if self.no_curve:
            return
        try:
            self.curves.prepare(max(steps_of_curve(self.request), len(self.files)), _diverges)
        except Failed as failed:  # the steps from the reference's weights can be judged all the same
            if self.request.seeds:
                raise
            self.no_curve = str(failed)

    def prepare_more(self, left: float | None) -> None:
        """Train the reference from several seeds, where --seeds asks for it. left: seconds until --max-seconds is over."""
        if self.request.seeds and not (self.random or self.no_curve):
            self.end_losses = EndLossComparison(self.process, self.prepared, by_own_step)
            self.end_losses.prepare(left)

    def _truth(self, folder: Path, once: bool = False, times: float = 1.0) -> ComputeOwnTruth:
        return ComputeOwnTruth(
            weights=self.files,
            inputs=str(self.prepared.training),
            folder=str(folder),
            seed=self.request.seed,
            once=once,
            times=times,
            parts=self.parts,
        )

    def at(self: Own, precision: str) -> Own:
        """The same with the noise of the reference's code under autocast in a lower precision; itself for "".

        Itself, too, where this code cannot run so.
        """
        if precision and precision not in self._lower:
            self._lower[precision] = self._at(precision)
        found: Own = self._lower.get(precision, self)
        return found

    def _at(self: Own, precision: str) -> Own:
        lower = copy(self)
        lower.lowered, lower.exact = precision, ExactSteps(self.exact.folder / precision)
        lower.exact.folder.mkdir(exist_ok=True)
        self.process.phase(f"its own training steps in {precision}, and their noise")
        question = replace(self._truth(lower.exact.folder, once=self.few), lowered=precision)
        try:
            lower.truths = self.worker.ask(question).truths
        except Failed:
            return self
        lower.changed = ChangedSteps(self.process, self.prepared, self.files, self.few, precision, self.parts)
        if self.curves.bands and not self.parts:
            lower.curves = CurveComparison(self.process, self.prepared, by_own_step, precision)
            lower.curves.prepare(max(steps_of_curve(self.request), len(self.files)), _diverges)
        return lower

    def apart(self: Own, parts: tuple[int, ...]) -> Own:
        """The same with batch norms that use the items of each rank alone; itself for (). parts: items of each rank."""
        if parts and parts not in self._divided:
            divided = copy(self)
            divided.parts, divided.exact = parts, ExactSteps(self.space / f"parts-{'-'.join(map(str, parts))}")
            divided.exact.folder.mkdir(exist_ok=True)
            divided._coarse, divided._lower, divided.no_curve = (), {}, NO_CURVE
            divided.curves = CurveComparison(self.process, self.prepared, by_own_step)
            divided.changed = ChangedSteps(self.process, self.prepared, self.files, self.few, parts=parts)
            self.process.phase("its own training steps with the batch norms of each rank apart, and their noise")
            divided.truths = self.worker.ask(divided._truth(divided.exact.folder, once=self.few)).truths
            self._divided[parts] = divided
        found: Own = self._divided.get(parts, self)
        return found

    def more_rounding(self) -> Path:
        """The folder of the same steps with more rounding, which are computed once."""
        folder = self.exact.folder / "coarse"
        if not self._coarse:
            self.process.phase(f"its own steps with {MORE_ROUNDING:g} times the rounding")
            folder.mkdir(exist_ok=True)
            self._coarse = self.worker.ask(self._truth(folder, times=MORE_ROUNDING)).truths
        return folder


def _diverges(step: int, loss: float) -> str:
    """Why the reference cannot be trained freely, of which a loss is not finite."""
    return f"its own training diverges: a loss is {loss} at step {step}; fewer --steps may stay finite"
