"""The checks of a run whose model files make their own training step (``train_step``).

A subject and the reference are driven over the same weights: before each step the weights are set to the reference's, and the
optimizers keep the state that their own steps before have left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np

from .. import messages
from ..messages.own_step import (
    OwnStepsTaken,
    TakeOwnSteps,
    step_file,
)
from ..reference.build import Prepared, ReferenceProcess
from ..results.records import Check, Error, Training
from ..results.training import OWN_STEP
from ..results.verdicts import Verdict
from ..verdict.own_step import EXACT as EXACT_STATE
from ..verdict.own_step import NOISE as NOISE_OF_STATE
from ..verdict.own_step import START, state_file
from ..weights import npz
from .checks import iterated_vectors
from .compared import Coverage, rms, rounding_alone
from .conclusion import training_error
from .learner import Learner
from .own_exact import CLIP_EPS, NOISE, Beside, ExactSteps
from .own_explain import explaining
from .own_kinks import beyond_kinks, state_beyond_kinks
from .own_made import Made, Weight, compare_gradients, of_parameters
from .own_matching import Side
from .own_reference import ReferenceSteps
from .own_state import StateCompared, StateCoverage, States, compare_state, known_differences
from .own_step import (
    Explain,
    Weights,
    judge_losses,
    judge_optimizer,
    judge_statistics,
    judge_update,
    losses_first,
    unseen_optimizer,
    wrong_losses,
)
from .precision_checks import FLOAT32, judge_products, lower_than
from .ranks import own_agreement, rank_weights
from .step import Distance

RANDOM = "its train_step is random: two runs from one state differ in {} by {:.2g}. {}"
EPS_HAT = "eps-hat"  # a known difference of optimizers in every framework


@dataclass(frozen=True)
class OwnObserved:
    """The steps of a subject: timed is in the mode that is timed, watched is eager and lists what the optimizers were given."""

    timed: OwnStepsTaken
    watched: OwnStepsTaken


class OwnStepParity(ReferenceSteps):
    """Runs the checks of a subject's steps beside those of the reference."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared) -> None:
        super().__init__(process, prepared)
        self._again: dict[Path, OwnStepsTaken] = {}  # by the folder of a worker; see ``_taken_again``
        self._multiples: dict[str, dict[tuple[str, str], float]] = {}  # by the label of a subject; see States.multiples

    def observe(self, learner: Learner) -> OwnObserved:
        """Drive a subject over the reference's weights. The reference's process is not used."""
        self._again.pop(learner.worker.folder, None)
        for each in (self, *self._divided.values()):
            for some in (each, *each._lower.values()):
                some.changed.forget(learner)
        timed = self._drive(learner, "timed")
        watched = self._drive(learner, "watched")
        learner.worker.ask(messages.ReleaseMemory())
        return OwnObserved(timed, watched)

    def _drive(self, learner: Learner, what: str) -> OwnStepsTaken:
        """Let a subject make the steps. what: "timed", "watched", "again" or "drawn"."""
        self.process.listener.phase(learner.label, f"{len(self.files)} steps of its own from the reference's weights")
        question = TakeOwnSteps(
            weights=self.files,
            path=str(_file(learner, what)),
            watched=what in ("watched", "drawn"),
            other_numbers=what in ("again", "drawn"),
        )
        return learner.worker.ask(question)

    def judge(self, learner: Learner, observed: OwnObserved) -> tuple[Error, Training]:
        """Run all checks of a subject. Returns its verdict and the record of the checks."""
        if self.random:
            check = Check("update", 0, Verdict.INVALID, says=self.random)
            return Error(Verdict.INVALID, self.random), Training(OWN_STEP, checks=(check,))
        return self._beside(learner, observed)._judge(learner, observed)

    def _beside(self, learner: Learner, observed: OwnObserved) -> OwnStepParity:
        """The reference's steps beside which a subject is judged.

        They are in its precision, where that is lower than float32, and their batch norms use the items that its own use.
        """
        beside = self.apart(learner.ranks.items) if learner.ranks and learner.apart else self
        return beside.at(lower_than(self.truths[0].products, observed.watched.products))

    def _judge(self, learner: Learner, observed: OwnObserved) -> tuple[Error, Training]:
        known = len(self.prepared.shapes)
        checks = [rank_weights(learner, known)]
        coverage, distance, state = Coverage(), Distance(), StateCoverage()
        checks += judge_products(self.truths[0].products, observed.watched.products, self.lowered)
        checks += self.judge_steps(learner, observed, coverage, distance, state)
        if self.no_curve:
            checks.append(Check("curve", 0, Verdict.UNTESTED, says=self.no_curve))
        checks += iterated_vectors(self.prepared.shapes)
        differences = list(dict.fromkeys(check.difference for check in checks if check.difference))
        curves = self.curves.compare(learner, differences, lambda step: "")
        ends = self.end_losses.compare(learner.label, learner.worker, differences) if self.end_losses else ()
        training = Training(
            OWN_STEP,
            checks=tuple(checks),
            curve=next(iter(curves), None),
            untested=tuple(dict.fromkeys(coverage.untested)),
            judged=coverage.says,
            dropout_disabled=learner.dropout_disabled,
            precision=self.truths[0].precision,
            state_left_out=state.left_out,
            state_matched=state.matched,
            end_losses=next(iter(ends), None),
            other_curves=curves[1:],
            other_end_losses=ends[1:],
            ranks=learner.ranks.says() if learner.ranks else "",
            apart=learner.apart,
        )
        error = training_error(training, distance, coverage)
        updates = [check for check in checks if check.name in ("update", "loss") and check.step == 0]
        compared = sum(check.compared for check in updates)
        return replace(error, compared=compared, expected=sum(check.known for check in updates)), training

    def wrong_weights(self, error: Error) -> Training:
        """The record of a subject whose weights are not the reference's, so that no other check was made."""
        return Training(OWN_STEP, checks=(Check("weights", 0, Verdict.INVALID, says=error.reason or ""),))

    def judge_again(self, learner: Learner, error: Error) -> Error:
        """Judge the steps of a later process run. Returns ``error``, or the error that the later process run shows."""
        if self.random or error.verdict.fails:
            return error
        observed = self.observe(learner)
        checks = self._beside(learner, observed).judge_steps(learner, observed, Coverage(), Distance(), StateCoverage())
        broken = next((check for check in checks if check.verdict.fails), None)
        if broken is None:
            return error
        return replace(error, verdict=broken.verdict, reason=f"in a later process run: {broken.label}: {broken.says}")

    # -- one step -----------------------------------------------------------------------------------------------------

    def judge_steps(
        self,
        learner: Learner,
        observed: OwnObserved,
        coverage: Coverage,
        distance: Distance,
        state: StateCoverage,
    ) -> list[Check]:
        """The checks of all steps, up to the first one that fails: the state of the optimizers is another one after it.

        Where only the state differs, one more step is judged: its update may show why, as it does for another beta of Adam.
        coverage, state: get what was judged. distance: gets the changes.
        """
        checks, differs = list[Check](), False
        self._multiples[learner.label] = {}
        for number in range(len(self.files)):
            found = self._judge_step(learner, observed, number, coverage, distance, state)
            if learner.in_parts:  # it says more than what follows from it
                found.insert(0, self._agreement(learner, number))
            failing = [check.name for check in found if check.verdict.fails]
            checks += [check for check in found if not differs or check.name != "state"]
            if differs or failing not in ([], ["state"]):
                break
            differs = bool(failing)
        return checks

    def _agreement(self, learner: Learner, number: int) -> Check:
        """Whether all ranks have made the same step."""
        steps = [learner.of_ranks(_file(learner, what)) for what in ("watched", "timed")]
        files = ([step_file(each, number) for each in of_ranks] for of_ranks in steps)
        watched, timed = ([*map(npz.OnDisk, each)] for each in files)
        return own_agreement(number, watched, timed, bool(learner.apart))

    def _judge_step(
        self,
        learner: Learner,
        observed: OwnObserved,
        number: int,
        coverage: Coverage,
        distance: Distance,
        state: StateCoverage,
    ) -> list[Check]:
        """The checks of one step. coverage, state: get what was judged. distance: gets the changes."""
        since = {key: self._since(key, number) for key in self.truths[number].gradient_sizes}
        made = Made(
            number=number,
            all_losses=observed.timed.losses,
            taken=npz.OnDisk(step_file(_file(learner, "timed"), number)),
            watched=_of_ranks(
                learner,
                "watched",
                *(partial(step_file, number=each) for each in range(min(since.values(), default=number), number + 1)),
            ),
            exact=self.exact.arrays(number),
            truth=self.truths[number],
            fused_parameters=learner.fused_parameters,
            since=since,
            clips_inside=self.truths[number].clips and not observed.watched.shows_clipped,
        )
        beside, statistics = Beside.of(made, self.exact), Weights.of(made, True)
        if beside.weights.broken or statistics.broken:
            return self._checks(learner, beside, statistics)
        held = compare_state(self._states(learner, observed, made, self.exact))
        random = self._random(learner, [*beside.weights.failing, *statistics.failing], held, made)
        if random:
            return [Check("update", number, Verdict.INVALID, says=random)]
        beside = self.changed.nearest(beside, self._variants(observed), observed.watched.variants)
        if beside.exact.variants:  # a forward pass that comes after an update sees the changed weights
            statistics = Weights.of(beside.made, True)
        held, follows = self._nearest_state(learner, observed, beside, held)
        if beside.weights.failing and made.truth.precision == FLOAT32:  # other noise crosses kinks by itself
            noise = self._noise_of_steps(lambda folder, each: folder / NOISE.format(each), number)
            beside = replace(beside, weights=beyond_kinks(beside.weights, *noise))
        beside.weights.add(distance, coverage, rounding_alone(of_parameters(made.truth.gradient_sizes)))
        state.add(held)
        optimizer = self._of_given_gradients(learner, observed, made, beside.weights)
        checks = self._checks(learner, beside, statistics, any(each.verdict.fails for each in optimizer))
        checks = [*optimizer, *checks]
        known = known_differences(checks, beside.weights, statistics)
        return [*checks, held.check(number, known, follows)] if held.known else checks

    def _since(self, key: str, number: int) -> int:
        """The first step after the reference's update with this gradient that comes before the one of a step."""
        earlier = (step for step in reversed(range(number)) if key in self.truths[step].gradient_sizes)
        return next(earlier, -1) + 1

    def _checks(self, learner: Learner, beside: Beside, statistics: Weights, explained: bool = False) -> list[Check]:
        """The checks of one step, of which the weights have been compared.

        explained: whether the optimizers are known to make another step of the same gradients.
        """
        made, update, said = beside.made, beside.weights, list[str]()
        losses = judge_losses(made)
        explain: Explain = (lambda *_: ("", "")) if explained else self._explain(learner, beside, update, said)
        checks = judge_update(made, update, compare_gradients(made), explain, beside.exact.variants)
        if losses.verdict in (Verdict.DRIFT, Verdict.DIFFERENT) and not update.failing:
            explain("losses", None)
        if losses.verdict.fails and said:  # what explains the weights explains the loss, too
            losses = replace(losses, says=f"{losses.says}; {said[0]}")
        checks = [losses, *checks] if losses_first(made, losses, update) else [*checks, losses]
        if statistics.every:
            found = judge_statistics(
                made, statistics, self._explain(learner, replace(beside, rival=None), statistics, [])
            )
            # Batch norms in inference mode make all that follows wrong.
            checks = [found, *checks] if statistics.unchanged else [*checks, found]
        return checks

    def _of_given_gradients(self, learner: Learner, observed: OwnObserved, made: Made, weights: Weights) -> list[Check]:
        """The check of the optimizers with the gradients that a subject gives them, in a lower precision than float32.

        The noise of that precision is in the gradients, and hides what an optimizer makes of them. In float32, the update itself
        shows it.
        """
        if made.truth.precision == FLOAT32 or made.truth.skipped or not made.truth.gradient_sizes:
            return []
        seen = compare_gradients(made).seen and self._same_updates(learner, made.number)
        if made.clips_inside or not seen:
            return unseen_optimizer(made, weights)
        self.process.phase(f"its optimizers with the gradients of {learner.label}")
        # The gradients are the same to the last bit, so that only what the optimizers compute of them rounds, in float32.
        made = replace(made, taken=made.watched, truth=replace(made.truth, precision=FLOAT32))
        beside = Beside.of(made, self.changed.given(learner, _file(learner, "watched")))
        beside = self.changed.nearest(beside, self._variants(observed), observed.watched.variants)
        explain = self._explain(learner, beside, beside.weights, [])
        return [judge_optimizer(beside.made, beside.weights, explain, beside.exact.variants)]

    def _same_updates(self, learner: Learner, number: int) -> bool:
        """Whether the optimizers of a subject are given gradients in the same steps as the reference's, up to this one."""
        for each in range(number + 1):
            watched = _of_ranks(learner, "watched", partial(step_file, number=each))
            if any("/gradient/" in key for key in watched) != bool(self.truths[each].gradient_sizes):
                return False
        return True

    def _variants(self, observed: OwnObserved) -> tuple[str, ...]:
        """The known differences that the optimizers of a subject may have."""
        every = dict.fromkeys((EPS_HAT, *observed.watched.variants))
        return tuple(each for each in every if each != CLIP_EPS or self.truths[0].clips)

    def _nearest_state(
        self, learner: Learner, observed: OwnObserved, beside: Beside, held: StateCompared
    ) -> tuple[StateCompared, str]:
        """(the state beside steps with variants, where these explain what differs, and without what kinks explain; the variants).

        beside: the update. A state that agrees with its variants does not name them again. It may show one more, such as a clipping
        that changes less than an update shows: its moments sum that up.
        """
        made, variants = beside.made, beside.exact.variants
        others = self.changed.with_variants(self.exact, self._variants(observed))
        every = chain([beside.exact] if variants else (), others)
        follows = ""
        for exact in every if held.failing else ():
            other = compare_state(self._states(learner, observed, made, exact))
            if exact.explains(bool(other.failing), other.badness < held.badness):
                held, follows = other, ", ".join(each for each in exact.variants if each not in variants)
            if not held.failing:
                break
        if held.failing and made.truth.precision == FLOAT32:
            noise = self._noise_of_steps(lambda folder, each: state_file(folder / NOISE_OF_STATE, each), made.number)
            held = state_beyond_kinks(held, *noise)
        return held, follows

    def _explain(self, learner: Learner, beside: Beside, weights: Weights, said: list[str]) -> Explain:
        return explaining(self, learner.label, _file(learner, "timed"), beside, weights, said)

    def _random(self, learner: Learner, failing: Sequence[Weight], held: StateCompared, made: Made) -> str:
        """Why nothing can be said of a subject that differs, because its step is random; "" when it is not.

        failing: the weights that differ from the reference's.
        """
        losses = wrong_losses(made) if made.losses.keys() == made.truth.losses.keys() else []
        if not (failing or losses or held.failing):
            return ""
        again = self._taken_again(learner).losses[made.number]
        apart = self._apart(learner, failing, held, made.number)
        apart += [
            (f"loss {name!r}", gap)
            for name, loss in made.losses.items()
            if name in losses and not (gap := abs(again[name] - loss)) <= 0.1 * abs(loss - made.truth.losses[name])
        ]
        if not apart:
            return ""
        return RANDOM.format(*apart[0], self._drive(learner, "drawn").drawn)

    def _taken_again(self, learner: Learner) -> OwnStepsTaken:
        """The steps of a subject once more, with other random numbers."""
        if learner.worker.folder not in self._again:
            self._again[learner.worker.folder] = self._drive(learner, "again")
        return self._again[learner.worker.folder]

    def _apart(
        self, learner: Learner, failing: Sequence[Weight], held: StateCompared, number: int
    ) -> list[tuple[str, float]]:
        """What of the weights and the state is another one when the steps are made again, and the distance."""
        again = npz.OnDisk(step_file(_file(learner, "again"), number))
        gaps = [(each, rms(again[f"{number}/weight/{each.name}"].astype(np.float64) - each.found)) for each in failing]
        weights = [(each.name, gap) for each, gap in gaps if gap > 0.1 * each.compared.residual]
        return weights + list(held.apart(_of_ranks(learner, "again", partial(state_file, number=number))))
        return ""

    def _noise_of_steps(
        self, file: Callable[[Path, int], Path], number: int
    ) -> tuple[list[npz.OnDisk], list[npz.OnDisk]]:
        """The noise of each step up to this one, with more rounding and without. file: of a folder and a step."""
        folders, steps = (self.more_rounding(), self.exact.folder), range(number + 1)
        more, less = ([npz.OnDisk(file(each, step)) for step in steps] for each in folders)
        return more, less

    def _states(self, learner: Learner, observed: OwnObserved, made: Made, steps: ExactSteps) -> States:
        """The state of a subject after a step beside the exact one."""
        number, folder = made.number, steps.folder

        def arrays(path: Path, of: int = number) -> npz.OnDisk:
            return npz.OnDisk(state_file(path, of))

        def own(of: int) -> npz.OnDisk:
            return _of_ranks(learner, "timed", partial(state_file, number=of))

        exact = folder / EXACT_STATE
        return States(
            own=Side(learner.label, observed.timed.state[number], own(number), own(START)),
            right=Side("the reference", made.truth.state, arrays(exact), arrays(exact, START)),
            own_before=own(number - 1),
            right_before=arrays(exact, number - 1),
            noise=arrays(folder / NOISE_OF_STATE),
            weights=steps.arrays(number),
            own_weight=lambda name: made.taken.get(f"{number}/weight/{name}"),
            fused=made.fused_parameters,
            multiples=self._multiples[learner.label],
        )


def _of_ranks(learner: Learner, what: str, *files: Callable[[Path], Path]) -> npz.OnDisk:
    """The arrays of rank 0, and those that it lacks: each rank may have an optimizer for some of the parameters.

    what: see ``_file``. files: from the beginning of the names of the files of a rank.
    """
    every = reversed(learner.of_ranks(_file(learner, what)))
    return npz.OnDisk(*(file(each) for each in every for file in files))


def _file(learner: Learner, what: str) -> Path:
    """The beginning of the names of the files of the steps of a subject."""
    return learner.worker.folder / f"own-steps-{what}"
