"""Answers the questions about one file: float64 meaning -> nodes -> runtime -> conversion at the file's precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ..engine.budget import Clock
from ..processes.worker import Worker
from ..progress import Listener
from ..results.precision import Precision
from ..results.verdicts import Verdict
from ..verdict.layers import merged
from . import sequence
from .candidate import Candidate, Target
from .computing import INPUTS, Cases, Computed
from .doubt import doubtful_cases, measured_again
from .explaining import Side, explained
from .judge import CONVERSION, RUNTIME, Judged, no_evaluation, runtime
from .meaning import Meaning, joined, own_meaning, with_approximations
from .model import ModelReference
from .nodes import judge_nodes
from .options import CheckSettings
from .precision import Sides, approximated, at_precision, convert_at, narrower_noise, read_precision
from .quantisation import quantisation_of, with_scales
from .rounding import with_rounding
from .subject import Opened

FURTHER = 3  # cases beside the first in which nodes are judged


@dataclass(frozen=True)
class Answers:
    """Answers the questions about files.

    graphs: the worker that evaluates ONNX graphs. against: the reference, when it is a file. model: when it is a model.
    notes: gets a sentence on what could not be done.
    """

    settings: CheckSettings
    graphs: Worker | None
    against: Candidate | None
    model: ModelReference | None
    listener: Listener
    clock: Clock
    notes: list[str]

    def first(
        self, candidate: Candidate, cases: Cases, computed: Computed, target: Target | None
    ) -> tuple[dict[str, Judged], Target | None]:
        """Question -> its answer, and the reference, whose noise may have been measured again.

        What is found out about the file is kept in the candidate.

        cases: the input cases. computed: what the file computed on them. target: the reference; None without one.
        """
        assert candidate.opened is not None
        opened = replace(candidate.opened, state=computed.state)
        candidate.cases, candidate.computed = cases, computed
        self.listener.phase(candidate.label, "evaluating it in float64")
        candidate.precision = read_precision(opened, self.graphs)
        candidate.own = self._meaning(opened, computed, candidate.precision)
        so_far = self._outputs_alone(opened, computed, candidate.own, cases)
        self.listener.phase(candidate.label, f"{so_far}evaluating every node in float64")
        inputs = sequence.last_step(opened, computed.inputs, computed.own)
        candidate.layers = judge_nodes(opened, inputs, self.graphs, 0, self.settings.seed, self.clock.left)
        candidate.own = self._with_explained(candidate, opened, computed)
        if candidate.own is None and target is not None:
            without = no_evaluation(opened.form.title)
            self.notes.append(f"{candidate.label}: {without}, so runtime and file are judged together")
        found = self.judge(candidate, computed, target)
        doubtful = doubtful_cases(found.values())
        if doubtful:
            target = self._measured_again(candidate, computed, target, doubtful)
            found = self.judge(candidate, computed, target)
        if self._judged_further(candidate, opened, computed, found.get(RUNTIME)):
            found = self.judge(candidate, computed, target)
        if target is not None:
            found[CONVERSION] = self._explained(found[CONVERSION], opened, computed, target)
        says = sequence.by_step(found[CONVERSION if target else RUNTIME].error, self.settings)
        candidate.computed = replace(computed, notes=(*computed.notes, *says))
        told = {name: replace(each, error=sequence.told(each.error, self.settings)) for name, each in found.items()}
        return told, target

    def _judged_further(self, candidate: Candidate, opened: Opened, computed: Computed, found: Judged | None) -> bool:
        """Judge the nodes in each case whose outputs are not EQUAL, too. Returns whether there was such a case.

        found: the answer on the runtime.
        """
        layers = candidate.layers
        if found is None or layers is None or not layers.compared or self.settings.steps is not None:
            return False
        beyond = {each.case for each in found.error.tensors if each.verdict in (Verdict.DRIFT, Verdict.DIFFERENT)}
        cases = sorted(beyond - set(layers.cases))[:FURTHER]
        if not cases:
            return False
        self.listener.phase(candidate.label, "evaluating every node in float64 in further cases")
        seed, left = self.settings.seed, self.clock.left
        judged = [judge_nodes(opened, computed.inputs, self.graphs, 0, seed, left, case) for case in cases]
        candidate.layers = merged([layers, *(each for each in judged if each is not None)])
        candidate.own = self._with_explained(candidate, opened, computed)
        return True

    def _measured_again(
        self, candidate: Candidate, computed: Computed, target: Target | None, cases: tuple[int, ...]
    ) -> Target | None:
        """Measure the noise of a file and of its reference again for these cases. Returns the reference."""
        self.listener.phase(candidate.label, "measuring the noise again, because an output is just beyond the limit")
        seed, against = self.settings.seed, self.against
        opened = candidate.opened
        if candidate.own is not None and opened is not None and not (candidate.precision or Precision()).is_narrow:
            candidate.own = measured_again(candidate.own, opened, computed.inputs, self.graphs, seed, cases)
        if target is None or against is None or against.opened is None or against.computed is None:
            return target
        again = measured_again(target.meaning, against.opened, against.computed.inputs, self.graphs, seed, cases)
        return replace(target, meaning=again)

    def _outputs_alone(self, opened: Opened, computed: Computed, own: Meaning | None, cases: Cases) -> str:
        """The verdict on the outputs for the progress display, because the nodes take longer; "" where there is none."""
        if own is None:
            return ""
        error = runtime(computed, own, cases.count, None, opened.form.title).error
        return f"its outputs alone are {error.verdict}; "

    def judge(self, candidate: Candidate, computed: Computed, target: Target | None) -> dict[str, Judged]:
        """Question -> its answer for these outputs of a file whose meaning is known.

        Without an evaluation of the file in float64, a comparison with the reference answers both questions.
        """
        opened, cases, own = candidate.opened, candidate.cases, candidate.own
        assert opened is not None
        assert cases is not None
        found = {}
        if own is not None or target is None:
            found[RUNTIME] = runtime(
                computed, own, cases.count, candidate.layers, opened.form.title, candidate.precision
            )
        if target is not None:
            found[CONVERSION] = self._convert(candidate, computed, target, found.get(RUNTIME))
        return found

    def _convert(self, candidate: Candidate, computed: Computed, target: Target, found: Judged | None) -> Judged:
        """Does the file say what the reference says, at its precision? found: the answer on the runtime."""
        precision = candidate.precision or Precision()
        against = self.against.opened if self.against else None
        assert candidate.opened is not None
        assert candidate.cases is not None
        own, cases = candidate.own, candidate.cases
        rounded = with_rounding(own, computed, found, target.meaning.floors is None) if own and found else own
        sides = Sides(
            candidate.opened, computed, own, rounded, target.meaning, against, cases, self.graphs, self.settings.seed
        )
        self.listener.phase(candidate.label, f"evaluating it at {precision.name}")
        converted = convert_at(sides, precision)
        if candidate.quantisation is None:
            candidate.quantisation = quantisation_of(sides, precision, converted, found)
            self.notes.extend(f"{candidate.label}: {note}" for note in converted.notes)
        return with_scales(converted.judged, candidate.quantisation)

    def _meaning(self, opened: Opened, computed: Computed, precision: Precision) -> Meaning | None:
        """The meaning of a file, with the noise of its precision."""
        found = own_meaning(opened, computed.inputs, computed.own, self.graphs, self.settings.seed, self.notes)
        return at_precision(found, precision, computed)

    def _with_explained(self, candidate: Candidate, opened: Opened, computed: Computed) -> Meaning | None:
        """The meaning with the noise of the approximations and of the other precision that explain some nodes."""
        own, layers, seed = candidate.own, candidate.layers, self.settings.seed
        nodes = [layer.layer for layer in layers.layers if approximated(layer)] if layers else []
        if own is None or self.graphs is None:
            return own
        if nodes:
            self.listener.phase(candidate.label, "evaluating it with the precision of its approximated nodes")
            own = with_approximations(own, opened, computed.inputs, self.graphs, seed, nodes)
        narrower = narrower_noise(opened, computed, layers, self.graphs, seed)
        if narrower is not None:
            own = replace(own, rounding_floors=joined([own.rounding_floors or own.floors, narrower]))
        return own

    def _explained(self, judged: Judged, opened: Opened, computed: Computed, target: Target) -> Judged:
        """The answer on a conversion with what is known about its cause."""
        if self.model is not None and judged.error.verdict == Verdict.DIFFERENT:
            judged = replace(judged, error=self.model.explained(judged.error, opened, self.graphs))
        against = self.against.opened if self.against else None
        reference = Side(against, against.worker.folder / INPUTS) if against else None
        file = Side(opened, computed.inputs)
        return explained(judged, file, computed, target.cases, target.meaning, reference, self.graphs)
