"""The outputs of a run's subjects at other sizes than the one that is timed.

The callable that was timed is called on inputs of the other sizes, as its user would: what a trace or a compiler has made a
constant is then that of the first size. The reference computes every size in float64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Refused, UsageError
from ..messages import CallOn
from ..processes.worker import Worker
from ..reference import truth
from ..reference.build import Prepared, ReferenceProcess, write_inputs
from ..reference.exporting import Export
from ..reference.layers import LayerReplay
from ..reference.replayed import ReplayedLayers, capture_layers, replay_further, replay_layers
from ..reference.request import at_size
from ..reference.truth import Truth
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.judgement import doubtful
from ..workload.sizes import Size, naming, said
from . import judging
from .budget import Clock
from .candidate import Candidate
from .stages import Calls


@dataclass(frozen=True)
class SizedReference:
    """The reference at one of the other sizes. process, prepared: with the request, the spec and the inputs of this size."""

    size: Size
    process: ReferenceProcess
    prepared: Prepared
    float32: truth.Outputs


def prepare(process: ReferenceProcess, prepared: Prepared) -> tuple[SizedReference, ...]:
    """Compute the reference in float32 at every other size. Raises UsageError for a size that it refuses."""
    return tuple(
        _prepared(process, prepared, size, process.space / f"size-{index}")
        for index, size in enumerate(process.request.other_sizes)
    )


def _prepared(process: ReferenceProcess, prepared: Prepared, size: Size, place: Path) -> SizedReference:
    place.mkdir()
    request = replace(process.request, batch=size.get("batch", process.request.batch), sizes=size, other_sizes=())
    there = replace(process, request=request, folder=at_size(process.folder, size), inputs=None, place=place)
    ready = replace(prepared, **vars(write_inputs(there)))
    return SizedReference(size, there, ready, compute_float32(there, ready))


def compute_float32(process: ReferenceProcess, prepared: Prepared) -> truth.Outputs:
    """See ``truth.compute_float32``. Raises UsageError, too, for a size that the user named and that the reference refuses."""
    size = process.request.sizes
    try:
        with naming(size):
            return truth.compute_float32(process, prepared)
    except Refused as error:
        if not size:
            raise
        raise UsageError(
            f"--sizes {said(size)}: the reference {process.framework} refuses this size: {error}; leave it out, "
            "or correct the model"
        ) from None


class OtherSizes:
    """Judges candidates at other sizes. truths: size -> the exact outputs, from when they are needed."""

    def __init__(self, references: Sequence[SizedReference]) -> None:
        self.references = references
        self.truths: dict[int, Truth] = {}

    def judge(self, candidates: Sequence[Candidate], prepared: Prepared, exact: Truth, clock: Clock) -> None:
        """Judge candidates whose first process run is timed, and whose workers still run.

        prepared, exact: the weights, and the exact outputs of the first size.
        """
        for index, reference in enumerate(self.references):
            late = clock.left is not None and clock.left <= 0
            for candidate in candidates:
                if not candidate.active:
                    continue
                if late:
                    reason = f"--max-seconds was over before the size {said(reference.size)}"
                    candidate.take_size(reference.size, Error(Verdict.UNTESTED, reason=reason))
                    continue
                with candidate.at_size(reference.size):
                    wrong = candidate.wrong_weights(prepared)
                    candidate.take_size(reference.size, wrong or self._error(index, candidate, exact))

    def _error(self, index: int, candidate: Candidate, first: Truth) -> Error:
        """The error of a candidate at a size. Raises SubjectError when its process ends. first: at the first size."""
        reference = self.references[index]
        fixed = _fixed(candidate)
        if fixed:
            only = said(candidate.request.sizes)
            return Error(Verdict.UNTESTED, reason=f"{candidate.label} takes the size {only} alone: {fixed}")
        path = candidate.worker.folder / f"size-{index}.npz"
        try:
            candidate.worker.ask(CallOn(inputs=str(reference.prepared.inputs), path=str(path)))
        except Refused as error:
            reason = f"it refuses {said(reference.size)}, which the reference takes: {error}"
            return Error(Verdict.DIFFERENT, reason=reason)
        found, replayed = self._judged(index, candidate, path)
        return found if candidate.cases_away(first) else _by_its_callable(found, candidate, replayed)

    def _judged(self, index: int, candidate: Candidate, path: Path) -> tuple[Error, ReplayedLayers | None]:
        """Compare outputs with the reference, with the layers where they decide. path: the file of the outputs."""
        reference = self.references[index]
        exact = self.truths.get(index)
        if exact is None:
            exact = truth.evaluate(reference.process, reference.prepared, reference.float32)

        def compared(replayed: ReplayedLayers | None) -> Error:
            assert exact is not None
            spec, cases = reference.process.folder.spec, reference.process.request.cases
            return judging.outputs({0: path}, exact, spec, cases, candidate.subject, replayed, Calls())

        error, replayed = compared(None), None
        if error.verdict > Verdict.EQUAL and exact.layers and not exact.unusable:
            replayed = _replayed(reference, exact, candidate, path, error)
            error = compared(replayed)
        cases = doubtful(error)
        if cases:
            exact = truth.measured_again(reference.process, reference.prepared, exact, cases)
            error = compared(replayed)
        self.truths[index] = exact
        return error, replayed


def _by_its_callable(error: Error, candidate: Candidate, replayed: ReplayedLayers | None) -> Error:
    """The same with the cause, where the model is right at this size when it is called eagerly, and its callable is not."""
    if error.verdict != Verdict.DIFFERENT or replayed is None or replayed.layers.verdict != Verdict.EQUAL:
        return error
    if replayed.of_callable(candidate.subject.label, candidate.subject.mode) or not replayed.returned:
        return error
    reason = (
        f"{candidate.label} was made at {said(candidate.request.sizes)}, and differs at this size from the same model called "
        f"layer by layer, which is right, as where a constant of the first size is in it; {error.reason}"
    )
    return replace(error, reason=reason)


def _fixed(candidate: Candidate) -> str:
    """Why a candidate can take no other size by its nature; "" when it can."""
    export = candidate.source.export
    if candidate.subject.adapter.runs_export and isinstance(export, Export) and export.fixed:
        return f"torch exports this model to ONNX with fixed sizes only: {export.fixed}"
    return candidate.subject.adapter.one_size


def _replayed(
    reference: SizedReference, exact: Truth, candidate: Candidate, path: Path, error: Error
) -> ReplayedLayers | None:
    """The layers of a candidate in the cases that differ; None when they cannot be judged. path: the file of its outputs."""
    worker: Worker = candidate.worker
    replay = LayerReplay(reference.process, reference.prepared, exact.layers)
    own = candidate.subject.mode == candidate.subject.adapter.captured_mode
    try:
        captured = capture_layers(replay, worker)
        found = replay_layers(replay, exact, worker, candidate.label, captured, not own, {})
        further = sorted(set(_away(error)) - set(found.layers.cases))
        if found.layers.compared and further:
            found = replay_further(replay, exact, worker, candidate.label, found, further)
    except Refused:
        return None
    return found


def _away(error: Error) -> Iterator[int]:
    """The input cases in which an output is not EQUAL."""
    return (each.case for each in error.tensors if each.verdict is not None and each.verdict > Verdict.EQUAL)
