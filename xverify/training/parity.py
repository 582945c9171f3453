"""Training parity: the checks that show where a framework's training first differs from the reference's.

The checks are weights, forward, loss, backward, gradients, update and statistics, and they are repeated from later states. Every
check starts from the reference's own state of that step, so that a fault in one step does not change the next one. Forward and
backward are judged layer by layer in a replay. The other checks judge the results of the timed callable itself.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from .. import messages
from ..errors import Absent, Failed, Refused
from ..messages import reference as messages_reference
from ..messages.training import (
    CaptureTraining,
    GradientFloors,
    PrepareTraining,
    ReplayTraining,
    StepTaken,
    TrainingCaptured,
    TrainingState,
    TrainingStep,
    TrainingTruth,
    Trajectory,
)
from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess
from ..reference.inputs import fewer_items
from ..reference.repeated import training_randomness
from ..results.records import Check, Curve, Error, Layers, Training
from ..results.verdicts import Verdict
from ..verdict.findings import StepTruth
from ..verdict.layers import summarise
from ..weights import normal_form, npz
from ..weights.canonical import Array
from ..workload.loss_mistakes import WrongLoss, wrong_losses
from ..workload.losses import Objective
from ..workload.objective import REFERENCE, objective_of
from .checks import Local, iterated_vectors, judge_loss, judge_statistics, judge_update
from .compared import Coverage
from .conclusion import layer_check, training_error
from .curve import CurveComparison, steps_of_curve, too_long
from .divergence import where_it_diverges
from .dropout import DropoutComparison
from .end_losses import EndLossComparison
from .free_run import by_recipe
from .gradients import judge_gradients
from .learner import Learner, Observed
from .precision_checks import judge_layers, judge_mixed
from .rank_dropout import rank_dropout
from .rank_layers import layers_of
from .ranks import NO_CURVE, RankedStep, RankTruths, apart, rank_weights
from .recipe_checks import judge_recipe
from .step import Distance, Step

# By effort: after how many steps of the reference its state is used for the checks.
STEPS = {"quick": (0, 2), "standard": (0, 1, 2, 5, 20), "rigorous": (0, 1, 2, 5, 20)}
FEW_ITEMS = 2  # items of a batch whose layers are judged when steps are long; the noise of a step is then measured once, not twice
LOCAL = ("forward", "backward")  # the layer checks
BEFORE_BACKWARD = ("weights", "precision", "master weights", "forward", "loss")


class TrainingParity:
    """Runs the checks. The reference's states, exact steps and loss curve are computed once and kept in files."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared) -> None:
        self.process, self.prepared = process, prepared
        self.request, self.worker, self.space = process.request, process.worker, process.space
        assert self.request.optimizer is not None
        self.optimizer = self.request.optimizer
        self.layers: tuple[str, ...] = ()
        self.states: tuple[TrainingState, ...] = ()
        self.few = prepared.few_training
        self.curves = CurveComparison(process, prepared, by_recipe, self.optimizer.recipe.precision)
        self.no_curve = ""
        self.end_losses: EndLossComparison | None = None
        self.dropout: DropoutComparison | None = None
        self.random = ""
        self.named_loss: Objective | None = None
        self._truths: dict[int, StepTruth] = {}
        self._gradient_noise: dict[tuple[int, float], Mapping[str, Array]] = {}
        self._rank_truths: dict[int, RankTruths] = {}
        self._captured: set[tuple[str, ...]] = set()
        self._replayed: dict[tuple[str, ...], tuple[tuple[Check, ...], Layers]] = {}

    def prepare(self, curve: bool = True, seconds: float = 0.0, left: float | None = None) -> None:
        """Train the reference, to get the states that checks start from and the band for loss curves.

        curve: whether to draw the loss curve; without it, only ``judge_steps`` may be called, and later states are always judged.
        seconds: duration of a step of the reference; 0.0 when it is not known. When it is too long for a quick run, the reference
            is not trained at all.
        left: seconds until --max-seconds is over; None without a limit. When they are too few for the curves of the reference
            and its replicas, the reference is not trained either, and the first state alone is judged.
        Raises Failed when the reference's own loss is not finite.
        """
        self.layers = self.worker.ask(messages_reference.ListLayers())
        start = TrainingState(weights=str(self.prepared.weights), optimizer_state="", steps=0)
        self.states = (start,)
        self._phase("running twice on one input, to see whether it is random")
        self.random = training_randomness(self.process, self.prepared)
        if self.random:  # nothing that it computes could be compared
            return
        asked = self.request.steps or self.request.seeds or self.request.dropout_masks
        quick = curve and self.request.effort == "quick" and not asked
        self.no_curve = too_long(self.request, seconds, left, quick)
        if not self.no_curve:
            second_step = self._prepare_reference()
            self.no_curve = too_long(self.request, seconds or second_step, None, quick)
        if self.no_curve:
            self.few = fewer_items(self.process, self.prepared.training, FEW_ITEMS)
            return
        if curve:
            self.curves.prepare(steps_of_curve(self.request), self._diverges)
        later = self.worker.ask(Trajectory(state=start, at=STEPS[self.request.effort], folder=str(self.space)))
        self.states = (start, *later[1:])

    def _prepare_reference(self) -> float:
        """Make the reference ready for training. Returns the seconds of its second step."""
        self._phase("training in float32")
        question = PrepareTraining(
            inputs=str(self.prepared.training), mode="eager", optimizer=self.optimizer, match=False,
            dropout=self.request.dropout_masks,
        )  # fmt: skip
        return self.worker.ask(question).second_step_seconds

    def prepare_more(self, left: float | None) -> None:
        """Prepare what --seeds and --dropout-masks ask for, after ``prepare``. left: seconds as there."""
        if self.random or self.no_curve:
            return
        if self.request.dropout_masks:
            self.dropout = DropoutComparison(self.process, self.prepared, self.states)
        if self.request.seeds:
            self.end_losses = EndLossComparison(self.process, self.prepared, by_recipe)
            self.end_losses.prepare(left)

    def observe(self, learner: Learner) -> Observed:
        """Capture a subject's layers, and let it make its first step. ``prepare`` must have been called.

        The reference's process is not used, so it may do other work meanwhile. Call this for one subject at a time.
        """
        captured = None
        if learner.build_key not in self._captured and not learner.in_parts:
            captured = self._capture(learner)
            if not isinstance(captured, Absent):  # otherwise the next subject of this build is tried
                self._captured.add(learner.build_key)
        step = self._step(learner, 0)
        learner.worker.ask(messages.ReleaseMemory())
        return Observed(captured, step)

    def judge(self, learner: Learner, observed: Observed) -> tuple[Error, Training]:
        """Run all checks of a subject. Returns its verdict and the record of the checks."""
        if self.random:
            check = Check("forward", 0, Verdict.INVALID, says=self.random)
            return Error(Verdict.INVALID, self.random), Training(self.optimizer.says(), checks=(check,))
        by_layer, layers = ((), None) if learner.in_parts else self._judge_layers(learner, observed.captured)
        local = Local.of(by_layer, learner.optimizer.recipe.is_mixed)
        known = len(self.prepared.shapes)
        # Subjects with other weights are not judged here; ranks may have other ones among themselves.
        checks = [rank_weights(learner, known), *by_layer]
        coverage, distance = Coverage(), Distance()
        for index in range(len(self.states)):
            taken = self._step(learner, index) if index else observed.step
            checks += self._judge_step(learner, index, taken, local, coverage, distance)
        checks += judge_layers(self.optimizer.recipe, observed.captured)
        no_curve = self.no_curve or (NO_CURVE if learner.apart else "")
        if no_curve:
            checks.append(Check("curve", 0, Verdict.UNTESTED, says=no_curve))
        checks += [
            *iterated_vectors(self.prepared.shapes),
            *(self.dropout.checks(learner, local) if self.dropout else ()),
            *(rank_dropout(learner) if learner.in_parts else ()),
        ]
        # The loss comes before the backward pass, so that a wrong loss is reported as the first that breaks.
        checks = sorted(checks, key=lambda check: (check.step, check.name not in BEFORE_BACKWARD))
        objective = objective_of(self.process.folder, REFERENCE)
        differences = list(dict.fromkeys(check.difference for check in checks if check.difference))
        ends = self.end_losses
        training = Training(
            optimizer=self.optimizer.says(),
            variants=learner.optimizer.variants,
            checks=tuple(checks),
            curve=None if no_curve else self._curve(learner, differences),
            untested=tuple(dict.fromkeys(coverage.untested)),
            judged=coverage.says,
            dropout_disabled=learner.dropout_disabled,
            layers=layers,
            loss=objective.says() if objective else "",
            precision=self.optimizer.recipe.precision,
            end_losses=ends.compare(learner.label, learner.worker, differences)[0] if ends else None,
            ranks=learner.ranks.says() if learner.ranks else "",
            apart=learner.apart,
        )
        return training_error(training, distance, coverage), training

    def wrong_weights(self, error: Error) -> Training:
        """The record of a subject whose weights are not the reference's, so that no other check was made."""
        return Training(self.optimizer.says(), checks=(Check("weights", 0, Verdict.INVALID, says=error.reason or ""),))

    def judge_steps(self, learner: Learner) -> list[Check]:
        """Run the checks of whole steps alone, without the layer checks."""
        local = Local.of((), learner.optimizer.recipe.is_mixed)
        return [
            check
            for index in range(len(self.states))
            for check in self._judge_step(learner, index, self._step(learner, index), local, Coverage(), Distance())
        ]

    def loss_mistakes(self) -> list[WrongLoss]:
        """The mistakes that would change the loss of the first step; [] where it is no sum of named losses."""
        changed = self._truth(0).alternatives
        return [wrong for wrong in wrong_losses(self.named_loss) if wrong.says in changed] if self.named_loss else []

    def visible(self, share: float) -> float:
        """The largest change of the first parameter's gradient in a judged step, in noise floors, when it changes by this share."""
        truths = [self._truth(index) for index in range(len(self.states))]
        first = next(iter(truths[0].sizes))
        return max(share * truth.sizes[first] / (truth.floors[first] or math.inf) for truth in truths)

    def judge_again(self, learner: Learner, error: Error) -> Error:
        """Judge the first step of a later process run. Returns ``error``, or the error that the later process run shows."""
        judged = self._replayed.get(learner.build_key)
        if judged is None and not learner.in_parts:
            judged = self._judge_layers(learner, None)
        local = Local.of(judged[0] if judged else (), learner.optimizer.recipe.is_mixed)
        checks = self._judge_step(learner, 0, self._step(learner, 0), local, Coverage(), Distance())
        broken = next((check for check in checks if check.verdict.fails), None)
        if broken is None or error.verdict.fails:
            return error
        return replace(error, verdict=broken.verdict, reason=f"in a later process run: {broken.name}: {broken.says}")

    # -- layer by layer -----------------------------------------------------------------------------------------------

    def _judge_layers(
        self, learner: Learner, captured: TrainingCaptured | Absent | None
    ) -> tuple[tuple[Check, ...], Layers]:
        """The forward and backward checks, made once for all modes that build the same model.

        When they fail for one mode, the next one is tried.
        """
        key = learner.build_key
        earlier = self._replayed.get(key)
        if earlier is None or not earlier[1].compared:
            found = self._replay(learner, self._capture(learner) if captured is None else captured)
            if earlier is None or found[1].compared:
                self._replayed[key] = found
        return self._replayed[key]

    def _capture(self, learner: Learner) -> TrainingCaptured | Absent:
        """The calls of a subject's layers, forward and backward; Absent where they could not be captured."""
        self.process.listener.phase(learner.label, "capturing its layers, forward and backward")
        shutil.rmtree(learner.layer_folder, ignore_errors=True)
        learner.layer_folder.mkdir()
        question = CaptureTraining(
            state=self.states[0], inputs=str(self.few), folder=str(learner.layer_folder), wanted=self.layers
        )
        try:
            captured = learner.worker.ask(question)
        except Refused as error:
            return Absent(str(error))
        return captured if captured.records else Absent("no layer could be captured")

    def _replay(self, learner: Learner, captured: TrainingCaptured | Absent) -> tuple[tuple[Check, ...], Layers]:
        known, folder = self.layers, learner.layer_folder
        try:
            if isinstance(captured, Absent):
                raise Failed(captured.reason)
            self._phase(f"replaying the layers of {learner.label}, forward and backward")
            reports = self.worker.ask(
                ReplayTraining(
                    state=self.states[0],
                    inputs=str(self.few),
                    folder=str(folder),
                    records=captured.records,
                    channels_last=captured.channels_last,
                    seed=self.request.seed,
                    precision=self.optimizer.recipe.precision,
                    loss_scale=captured.loss_scale,
                )
            )
        except Refused as error:
            empty = Layers(known=len(known), subject=learner.label, stopped=str(error))
            checks = [Check(name, 0, Verdict.UNTESTED, says=str(error), known=len(known)) for name in LOCAL]
            return tuple(checks), empty
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        forward, backward = (summarise(each, known, learner.label) for each in reports)
        return (layer_check("forward", forward), layer_check("backward", backward)), forward

    # -- step by step -------------------------------------------------------------------------------------------------

    def _step(self, learner: Learner, index: int) -> StepTaken:
        """Let a subject make one step from this state and write it to its file. Returns what its worker reports."""
        state = self.states[index]
        self.process.listener.phase(learner.label, f"one step from the reference's state after {state.steps}")
        return learner.worker.ask(TrainingStep(state, self._case(index), str(learner.step_file), scaling=not index))

    def _judge_step(
        self, learner: Learner, index: int, taken: StepTaken, local: Local, coverage: Coverage, distance: Distance
    ) -> list[Check]:
        """The checks of one whole step. coverage, distance: see judge_gradients."""
        state, truth = self.states[index], self._truth(index)
        before: Mapping[str, Array] = npz.OnDisk(Path(state.weights))
        if learner.fused_parameters:
            before = normal_form(dict(before), learner.fused_parameters)
        step = Step(
            index=index,
            number=state.steps,
            taken=npz.OnDisk(learner.step_file),
            before=before,
            optimizer_state=npz.OnDisk(Path(state.optimizer_state)) if state.optimizer_state else {},
            exact=npz.OnDisk(self.space / f"truth-{index}.npz"),
            truth=truth,
            fused_parameters=learner.fused_parameters,
            recipe=self.optimizer.recipe,
        )
        ranked = None
        if learner.ranks is not None:
            truths = self._rank_truths.setdefault(index, RankTruths(self.worker, self._question(index), learner.ranks))
            step = apart(step, truths.parts, learner.ranks) if learner.apart else step
            layers = layers_of(learner, self.process, self.prepared, state, self.layers)
            ranked = RankedStep.of(step, learner, taken.loss, truths, layers)
        where = partial(self._where_it_diverges, learner.worker, state.steps)
        checks = [
            judge_loss(step, taken.loss, taken.step_loss, local.rounding, where),
            judge_gradients(step, local.more_rounding, partial(self._noise_of_gradients, index), coverage, distance),
            *judge_mixed(step, taken),
            *judge_recipe(step, self.optimizer, learner.optimizer.variants),
            judge_update(step, self.optimizer, learner.optimizer.variants, taken.sparse, coverage),
            *([judge_statistics(step, local.rounding)] if truth.statistics else ()),
        ]
        return ranked.judge(checks) if ranked else checks

    def _truth(self, index: int) -> StepTruth:
        """The exact step from a state, computed once."""
        if index not in self._truths:
            self._phase(f"the step after {self.states[index].steps} in float64, and its noise")
            reply = self.worker.ask(self._question(index))
            truth, self.named_loss = reply.truth, reply.loss
            if not math.isfinite(truth.loss):
                where = self._where_it_diverges(self.worker, self.states[index].steps)
                raise Failed(f"the reference's own loss is {truth.loss} at step {self.states[index].steps}{where}")
            self._truths[index] = truth
        return self._truths[index]

    def _question(self, index: int) -> TrainingTruth:
        """The request for the exact step from a state."""
        recipe = self.optimizer.recipe
        return TrainingTruth(
            self.states[index], str(self.prepared.training), self._case(index), str(self.space / f"truth-{index}.npz"),
            self.request.seed, once=bool(self.no_curve), parts=recipe.accumulate, precision=recipe.precision,
        )  # fmt: skip

    def _noise_of_gradients(self, index: int, times: float) -> Mapping[str, Array]:
        """The rms of the noise of each value of every gradient of a step when rounding is this many times as large."""
        if (index, times) not in self._gradient_noise:
            self._phase(f"the step after {self.states[index].steps} with {times:.3g} times the rounding")
            precision = self.optimizer.recipe.precision
            question = GradientFloors(
                state=self.states[index],
                inputs=str(self.prepared.training),
                case=self._case(index),
                seed=self.request.seed,
                times=times,
                path=str(self.space / f"noise-{index}-{len(self._gradient_noise)}.npz"),
                precision=precision,
            )
            self.worker.ask(question)
            self._gradient_noise[index, times] = npz.OnDisk(Path(question.path))
        return self._gradient_noise[index, times]

    def _case(self, index: int) -> int:
        """The batch of the step from a state."""
        return self.states[index].steps % self.request.cases

    def _curve(self, learner: Learner, differences: Sequence[str]) -> Curve | None:
        """The loss curve of a subject, from the first state; None where none is drawn."""
        where = partial(self._where_it_diverges, learner.worker)
        return next(iter(self.curves.compare(learner, differences, where)), None)

    def _diverges(self, step: int, loss: float) -> str:
        """Why the reference cannot be trained, whose loss is not finite."""
        where = self._where_it_diverges(self.worker, step)
        if not step:  # no update was made
            return f"the loss is {loss} at step 0{where}; it is not defined for the first outputs"
        return (
            f"its own training diverges: the loss is {loss} at step {step}{where}; a smaller --lr than "
            f"{self.optimizer.lr:g} may help"
        )

    def _where_it_diverges(self, worker: Worker, step: int) -> str:
        return where_it_diverges(worker, self.states[0], step, self.prepared.training, self.layers)

    def _phase(self, doing: str) -> None:
        self.process.phase(doing)
