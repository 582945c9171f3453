"""Answers the questions about one file: float64 meaning -> nodes -> runtime -> conversion at the file's precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .. import host
from ..errors import TimedOut
from ..processes.worker import Worker
from ..results.precision import Quantisation
from ..results.verdicts import Verdict
from ..verdict.findings import SATURATES
from ..verdict.layers import merged
from . import sequence
from .candidate import Context, Evaluated, Target
from .cases import UNTOLD
from .doubt import doubtful_cases, measured_again
from .explaining import explained, with_other_weights
from .judge import CONVERSION, RUNTIME, Judged, no_evaluation, runtime, with_a_general_case
from .meaning import Meaning, joined, own_meaning, patience, with_approximations
from .nodes import judge_nodes
from .overflow import told_overflow
from .precision import Converted, Sides, approximated, at_precision, convert_at, narrower_noise, step_noise
from .quantisation import coarse_parts, quantisation_of, with_scales
from .rounding import with_rounding

FLIPPED = "every node is EQUAL, and half a step at each quantised value changes the outputs by as much"
UNSHOWN = (
    "half a step at each quantised value changes the outputs by as much; this runtime does not show its nodes, so nothing tells "
    "whether each is right"
)
FURTHER = 3  # cases beside the first in which nodes are judged


@dataclass(frozen=True)
class Answered:
    """A file with its answers. answers: question -> answer. target: the reference, whose noise may have been measured again."""

    evaluated: Evaluated
    answers: Mapping[str, Judged]
    quantisation: Quantisation | None
    target: Target | None


@dataclass(frozen=True)
class Compared:
    """A file beside its reference. runtime: the answer on the runtime; None for a file without an evaluation in float64."""

    sides: Sides
    converted: Converted
    runtime: Judged | None


@dataclass(frozen=True)
class Answers:
    """Answers the questions about files. graphs: the worker that evaluates ONNX graphs."""

    context: Context
    graphs: Worker | None

    def of(self, evaluated: Evaluated, target: Target | None) -> Answered:
        """The answers about a file that was computed, and whose precision is known. target: the reference; None without one."""
        at = evaluated.at
        if (at.weights, at.activations) == ("int8", "uint8") and evaluated.opened.is_onnx and host.saturates_int8():
            self._note(evaluated, f"its outputs may be those of no other processor: {SATURATES}")
        evaluated = self._with_meaning(evaluated)
        if evaluated.late:  # the worker that was late is gone
            return replace(self, graphs=None)._of(evaluated, target)
        return self._of(self._with_nodes(evaluated), target)

    def _of(self, evaluated: Evaluated, target: Target | None) -> Answered:
        """The answers about a file whose meaning and nodes are known as far as they can be."""
        if evaluated.own is None and not evaluated.late and target is not None:
            without = no_evaluation(evaluated.opened.form.title)
            self._note(evaluated, f"{without}, so runtime and file are judged together")
        compared = self._compared(evaluated, target)
        quantisation = self._quantisation(evaluated, compared)
        answers = self._answers(evaluated, compared, quantisation)
        doubtful = doubtful_cases(answers.values())
        if doubtful and not self._is_late:
            evaluated, target = self._measured_again(evaluated, target, doubtful)
            answers = self._answers(evaluated, self._compared(evaluated, target), quantisation)
        further = self._judged_further(evaluated, answers.get(RUNTIME))
        if further is not evaluated:
            evaluated = further
            answers = self._answers(evaluated, self._compared(evaluated, target), quantisation)
        if target is not None:
            answers[CONVERSION] = self._explained(answers[CONVERSION], evaluated, target)
        overflows = evaluated.own.overflows if evaluated.own is not None else {}
        kinds = evaluated.cases.kinds
        answers = {name: with_a_general_case(told_overflow(each, overflows), kinds) for name, each in answers.items()}
        computed, settings = evaluated.computed, self.context.settings
        says = sequence.by_step(answers[CONVERSION if target else RUNTIME].error, settings)
        evaluated = replace(evaluated, computed=replace(computed, notes=(*computed.notes, *says)))
        told = {
            name: replace(
                each,
                error=replace(sequence.told(each.error, settings), unreached=_unreached(name, evaluated, target)),
            )
            for name, each in answers.items()
        }
        return Answered(evaluated, told, quantisation, target)

    @property
    def _is_late(self) -> bool:
        """Whether ``--max-seconds`` is over, so that nothing is refined."""
        left = self.context.clock.left
        return left is not None and left <= 0

    def _phase(self, evaluated: Evaluated, doing: str) -> None:
        self.context.listener.phase(evaluated.opened.label, doing)

    def _note(self, evaluated: Evaluated, says: str) -> None:
        self.context.notes.append(f"{evaluated.opened.label}: {says}")

    # -- what the file says -------------------------------------------------------------------------------------------

    def _with_meaning(self, evaluated: Evaluated) -> Evaluated:
        """Return the file with what it says in float64, and with the noise of its precision."""
        opened, computed, context = evaluated.opened, evaluated.computed, self.context
        seed, left = context.settings.seed, context.clock.left
        try:
            own = own_meaning(opened, computed.inputs, computed.own, self.graphs, seed, context.notes, left)
        except TimedOut as error:
            if opened.graph is None:  # its own worker is gone
                raise
            self._note(evaluated, str(error))
            return replace(evaluated, late=f"{error}: give more seconds, or smaller inputs with --shape")
        return replace(evaluated, own=at_precision(own, evaluated.at, computed))

    def _with_nodes(self, evaluated: Evaluated) -> Evaluated:
        """Return the file with the verdicts on its nodes."""
        opened, computed = evaluated.opened, evaluated.computed
        self._phase(evaluated, f"{self._outputs_alone(evaluated)}evaluating every node in float64")
        inputs = sequence.last_step(opened, computed.inputs, computed.own)
        left, seed = self.context.clock.left, self.context.settings.seed
        layers = judge_nodes(opened, inputs, self.graphs, 0, seed, left, begun=evaluated.capture)
        return self._with_explained(replace(evaluated, layers=layers))

    def _outputs_alone(self, evaluated: Evaluated) -> str:
        """The verdict on the outputs for the progress display, because the nodes take longer; "" where there is none."""
        if evaluated.own is None:
            return ""
        title, count = evaluated.opened.form.title, evaluated.cases.count
        return f"its outputs alone are {runtime(evaluated.computed, evaluated.own, count, None, title).error.verdict}; "

    def _with_explained(self, evaluated: Evaluated) -> Evaluated:
        """Return the file with the noise of the approximations, and of the other precision, that explain some of its nodes."""
        opened, computed, layers, own = evaluated.opened, evaluated.computed, evaluated.layers, evaluated.own
        graphs, seed = self.graphs, self.context.settings.seed
        nodes = [layer.layer for layer in layers.layers if approximated(layer)] if layers else []
        if own is None or graphs is None or self._is_late:
            return evaluated
        if nodes:
            self._phase(evaluated, "evaluating it with the precision of its approximated nodes")
            enough = patience(self.context.clock.left)
            own = with_approximations(own, opened, computed.inputs, graphs, seed, nodes, enough)
        narrower = narrower_noise(opened, computed, layers, graphs, seed)
        if narrower is not None:
            own = replace(own, rounding_floors=joined([own.rounding_floors or own.floors, narrower]))
        return replace(evaluated, own=own)

    def _judged_further(self, evaluated: Evaluated, found: Judged | None) -> Evaluated:
        """Return the file with verdicts on its nodes in each case whose outputs are not EQUAL. found: the answer on the runtime."""
        layers, settings = evaluated.layers, self.context.settings
        if found is None or layers is None or not layers.compared or settings.steps is not None:
            return evaluated
        beyond = {each.case for each in found.error.tensors if each.verdict in (Verdict.DRIFT, Verdict.DIFFERENT)}
        cases = sorted(beyond - set(layers.cases))[:FURTHER]
        if not cases:
            return evaluated
        self._phase(evaluated, "evaluating every node in float64 in further cases")
        opened, inputs, left = evaluated.opened, evaluated.computed.inputs, self.context.clock.left
        judged = [judge_nodes(opened, inputs, self.graphs, 0, settings.seed, left, case) for case in cases]
        every = merged([layers, *(each for each in judged if each is not None)])
        return self._with_explained(replace(evaluated, layers=every))

    def _measured_again(
        self, evaluated: Evaluated, target: Target | None, cases: tuple[int, ...]
    ) -> tuple[Evaluated, Target | None]:
        """Measure the noise of a file and of its reference again for these cases."""
        self._phase(evaluated, "measuring the noise again, because an output is just beyond the limit")
        graphs, seed = self.graphs, self.context.settings.seed
        if evaluated.own is not None and not evaluated.at.is_narrow:
            inputs = evaluated.computed.inputs
            own = measured_again(evaluated.own, evaluated.opened, inputs, graphs, seed, cases)
            evaluated = replace(evaluated, own=own)
        if target is not None and target.file is not None:
            inputs = target.file.computed.inputs
            again = measured_again(target.meaning, target.file.opened, inputs, graphs, seed, cases)
            target = replace(target, meaning=again)
        return evaluated, target

    # -- the answers --------------------------------------------------------------------------------------------------

    def _runtime(self, evaluated: Evaluated) -> Judged:
        """Does the runtime compute what the file says?"""
        found = self._with_floors(evaluated, evaluated.own)
        if found.error.verdict <= Verdict.EQUAL or evaluated.own is None or not self._may_flip(evaluated):
            return found
        opened, own = evaluated.opened, evaluated.own
        noise = step_noise(opened, evaluated.computed, self.graphs, self.context.settings.seed)
        again = self._with_floors(evaluated, replace(own, floors=joined([own.floors, noise])))
        shown = evaluated.layers is not None and evaluated.layers.compared > 0
        excused = [Verdict.IDENTICAL, Verdict.EQUAL, *([Verdict.UNTESTED] if shown else [])]
        if shown and not opened.is_onnx:  # the fixed-point arithmetic of other formats rounds more than the steps do
            excused.append(Verdict.DRIFT)
        if again.error.verdict not in excused:
            return found
        verdict = again.error.verdict if shown else max(Verdict.DRIFT, again.error.verdict)
        reason = "; ".join(filter(None, (FLIPPED if shown else UNSHOWN, again.error.reason)))
        return replace(again, error=replace(again.error, verdict=verdict, reason=reason))

    def _with_floors(self, evaluated: Evaluated, own: Meaning | None) -> Judged:
        """The answer on the runtime with the floors of this meaning of the file."""
        title, count = evaluated.opened.form.title, evaluated.cases.count
        return runtime(evaluated.computed, own, count, evaluated.layers, title, evaluated.precision, evaluated.late)

    def _may_flip(self, evaluated: Evaluated) -> bool:
        """Whether a file quantises, and every node of it was compared and is EQUAL, or the runtime shows no node.

        Then a value that lies beside the middle of two steps may become either of them, and so may what follows from it.
        """
        layers = evaluated.layers
        unshown = layers is None or not layers.compared
        known = layers is not None and layers.complete and layers.verdict <= Verdict.EQUAL
        has_graph = evaluated.opened.graph is not None and self.graphs is not None
        return (known or unshown) and evaluated.at.quantised and has_graph

    def _compared(self, evaluated: Evaluated, target: Target | None) -> Compared | None:
        """Does the file say what the reference says, at its precision? None without a reference."""
        if target is None:
            return None
        own, computed = evaluated.own, evaluated.computed
        found = self._runtime(evaluated) if own is not None else None
        rounded = with_rounding(own, computed, found, target.meaning.floors is None) if own and found else own
        sides = Sides(
            opened=evaluated.opened,
            computed=computed,
            own=own,
            rounded=rounded,
            reference=target.meaning,
            against=target.opened,
            cases=evaluated.cases,
            graphs=self.graphs,
            seed=self.context.settings.seed,
        )
        self._phase(evaluated, f"evaluating it at {evaluated.at.name}")
        return Compared(sides, convert_at(sides, evaluated.at), found)

    def _quantisation(self, evaluated: Evaluated, compared: Compared | None) -> Quantisation | None:
        """What quantisation costs, for a quantised file that has a reference. Notes what was not compared."""
        if compared is None:
            return None
        for note in compared.converted.notes:
            self._note(evaluated, note)
        return quantisation_of(compared.sides, evaluated.at, compared.converted, compared.runtime)

    def _answers(
        self, evaluated: Evaluated, compared: Compared | None, quantisation: Quantisation | None
    ) -> dict[str, Judged]:
        """Question -> its answer.

        Without an evaluation of the file in float64, a comparison with the reference answers both questions.
        """
        if compared is None:
            return {RUNTIME: self._runtime(evaluated)}
        judged, coarse = compared.converted.judged, coarse_parts(quantisation)
        if coarse and judged.error.verdict == Verdict.DIFFERENT:  # perhaps by no more than its steps are coarse
            self._phase(evaluated, "evaluating it with the noise of its coarse steps")
            judged = convert_at(compared.sides, evaluated.at, coarse=True).judged
        conversion = {CONVERSION: with_scales(judged, quantisation, coarse)}
        return conversion if compared.runtime is None else {RUNTIME: compared.runtime, **conversion}

    def _explained(self, judged: Judged, evaluated: Evaluated, target: Target) -> Judged:
        """The answer on a conversion with what is known about its cause."""
        opened, computed, error = evaluated.opened, evaluated.computed, judged.error
        if error.verdict == Verdict.DIFFERENT:
            reason = "; ".join(filter(None, [target.about_weights(opened), error.reason])) or None
            judged = replace(judged, error=replace(error, reason=reason))
        found = explained(self.context, judged, opened, computed, target, self.graphs, evaluated.at.quantised)
        return found if evaluated.at.quantised else with_other_weights(found, opened, target, self.graphs)


def _unreached(question: str, evaluated: Evaluated, target: Target | None) -> tuple[str, ...]:
    """What no input case reached in the file and, where it is compared with a reference, in this one."""
    own = evaluated.own.unreached if evaluated.own is not None else ()
    reference = target.meaning.unreached if target is not None and question == CONVERSION else ()
    guessed = (note for note in evaluated.cases.notes if UNTOLD in note)
    return (*guessed, *own, *(f"in the reference, {each}" for each in reference if each not in own))
