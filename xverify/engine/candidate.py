"""One subject of a run of a model folder: how it is built, judged and reported. ``timed`` has how it is timed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ..decoding.comparison import DecodingComparison, with_decoding
from ..errors import Absent, SubjectError, Unsupported
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import Prepared
from ..reference.exporting import Export
from ..reference.layers import Captured, LayerReplay
from ..reference.replayed import ReplayedLayers, capture_layers, replay_further, replay_layers
from ..reference.truth import Truth
from ..results.decoding import Decoding
from ..results.records import Error, Memory, Row, Speed, Training
from ..results.verdicts import Verdict
from ..timing.plan import EFFORTS
from ..training.learner import Learner
from ..verdict.first_size import AtSize, first_size, where
from ..verdict.judgement import demanded, distance, doubtful
from ..verdict.limits import EQUAL_RHO
from ..workload.request import Request
from ..workload.sizes import Size, order, said
from ..workload.spec import ModelFolder
from . import checking, judging, learning, measuring
from .building import FolderSource
from .stages import Calls, History, Subject
from .timed import TimedCandidate

T = TypeVar("T")


class Candidate(TimedCandidate):
    """A subject of a run.

    distances: see ``_distances``; None before they are computed.
    other_sizes: what was found at other sizes than the one that is timed: the error, or how its process ended there.
    """

    source: FolderSource

    def __init__(
        self,
        request: Request,
        folder: ModelFolder,
        subject: Subject,
        worker: Worker,
        listener: Listener,
        history: History = History(),  # noqa: B008  frozen
    ) -> None:
        super().__init__(subject.label, request, worker, listener, history)
        self.folder, self.subject = folder, subject
        self.room = measuring.output_bytes(folder.spec, request.batch)
        self.replayed: ReplayedLayers | None = None
        self.training: Training | None = None
        self.decoding: Decoding | None = None
        self.distances: dict[int, float] | None = None
        self.other_sizes: list[tuple[Size, Error | SubjectError]] = []

    # -- building -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process and import the framework, unless its mode cannot hold the model."""
        adapter = self.subject.adapter
        refused = adapter.refuses(self.folder, self.subject.mode)
        if self.request.device not in adapter.devices:
            refused = f"xverify runs this framework on {' or '.join(adapter.devices)} only"
        refused = self.subject.without_ranks or refused
        if refused:
            self.failure = Unsupported(refused)
        super().start()

    def use(self, prepared: Prepared, export: Export | Absent | None) -> None:
        """Take the weights, the inputs and the ONNX export that the model is built from and called with."""
        self.source = FolderSource(self.request, self.folder, self.subject, prepared, export)

    def use_normal_form(self, prepared: Prepared) -> None:
        """Take the same weights in normal form, which is the same in every framework of the run, and its digest.

        See weights.normal_form.
        """
        before, self.source = self.source.prepared, replace(self.source, prepared=prepared)
        if self.built is None:
            return
        if self.active:
            with self._stage():
                self.built = self.source.in_normal_form(self.built, self.worker)
        elif self.built.weights_digest == (self.built.folded_digest or before.weights_digest):
            # Its process has ended. Weights that were equal have equal sums.
            own = self.source.folded_digest(self.built)
            self.built = replace(self.built, weights_digest=own or prepared.weights_digest, folded_digest=own)

    # -- judging ------------------------------------------------------------------------------------------------------

    def capture(self, replay: LayerReplay) -> Captured:
        """Capture the layers. Raises SubjectError when that fails; the timed outputs are valid nevertheless."""
        self.listener.phase(self.label, "capturing its layers")
        return capture_layers(replay, self.worker)

    def replay(self, replay: LayerReplay, truth: Truth, captured: Captured, borrowed: bool) -> ReplayedLayers:
        """Judge the captured layers. Raises SubjectError when that fails; the timed outputs are valid nevertheless.

        borrowed: whether a callable that is not the captured one will be judged by these layers.
        """
        kept = self.timed.outputs if self.subject.mode == self.subject.adapter.captured_mode else {}
        return replay_layers(replay, truth, self.worker, self.label, captured, borrowed, kept)

    def replay_further(
        self, replay: LayerReplay, truth: Truth, found: ReplayedLayers, cases: Iterable[int]
    ) -> ReplayedLayers:
        """Judge the layers in further input cases, too. found: what was judged before."""
        self.listener.phase(self.label, "capturing its layers in further input cases")
        return replay_further(replay, truth, self.worker, self.label, found, cases)

    def call_differently(self, prepared: Prepared, truth: Truth, made: Calls | None) -> Calls | None:
        """Find out where two calls on one input differ, if they do, and call the model as its users do.

        It is the last use of the process, because a user's call may change running statistics.

        made: what another mode of the same model returned here; None: no other mode did.
        """
        if not self.active or truth.unusable:
            return made
        with self._stage():
            again = self.measured.repeated
            calls = checking.further_calls(self.worker, self.timed.outputs, again, prepared, truth, made)
            self.measured = replace(self.measured, calls=calls)
            return calls
        return made

    def near(self, truth: Truth) -> bool:
        """Whether its outputs are so near to the exact ones that their verdict does not depend on its layers."""
        return all(ratio <= EQUAL_RHO / 2 for ratio in self._distances(truth).values())

    def cases_away(self, truth: Truth) -> set[int]:
        """The input cases whose outputs are not within the plain limit, so that its layers have to be judged there, too."""
        return {case for case, ratio in self._distances(truth).items() if ratio > EQUAL_RHO and case >= 0}

    def _distances(self, truth: Truth) -> Mapping[int, float]:
        """Input case -> the largest residual / noise floor of its outputs; {-1: inf} when they cannot be read."""
        if self.distances is None:
            try:
                found = judging.later_outputs(self.timed.outputs, truth, self.folder.spec, self.subject, None).tensors
            except SubjectError:  # what the subject wrote may be unreadable; the verdict will say so
                return {-1: math.inf}
            self.distances = dict[int, float]()
            for tensor in found:
                if tensor.reason is not None and tensor.verdict == Verdict.UNTESTED:  # it has no finite value
                    continue
                ratio = distance(tensor) if tensor.reason is None else math.inf
                self.distances[tensor.case] = max(self.distances.get(tensor.case, 0.0), ratio)
        return self.distances

    def judge(self, prepared: Prepared, truth: Truth, replayed: ReplayedLayers | None) -> None:
        """Compare the outputs of the last timed calls with the reference. replayed: its replay, or None."""
        self.replayed = replayed
        if not self.alive:
            return
        with self._stage():  # what the subject wrote may be unreadable
            self.error = self.wrong_weights(prepared) or self._judged_outputs(truth, replayed)

    @contextmanager
    def at_size(self, size: Size) -> Iterator[None]:
        """Report to the listener that it is judged at another size. A process that ends there has failed at all sizes."""
        self.listener.phase(self.label, f"computing at {said(size)}")
        with self._stage():
            try:
                yield
            except SubjectError as error:
                self.other_sizes.append((size, error))
                raise type(error)(f"at {said(size)}: {error}") from None

    def take_size(self, size: Size, error: Error) -> None:
        """Note the error at another size."""
        error = self._demanded(error)
        self.other_sizes.append((size, error))
        self.listener.judged(self._sized_label(size), self.request.task, error.verdict)

    def wrong_weights(self, prepared: Prepared) -> Error | None:
        """The error of weights that are not those of the reference; None when they are."""
        return judging.wrong_weights(self.built, prepared) if self.built is not None else None

    def _sized_label(self, size: Size) -> str:
        """The name of its row at another size."""
        return f"{self.label} {said(size)}"

    @property
    def doubtful_cases(self) -> tuple[int, ...]:
        """The input cases in which an output is beyond a limit, perhaps because few samples measured its noise too small."""
        return doubtful(self.error) if self.active and self.error is not None else ()

    def _judged_outputs(self, truth: Truth, replayed: ReplayedLayers | None) -> Error:
        error = judging.outputs(
            self.timed.outputs,
            truth,
            self.folder.spec,
            self.request.cases,
            self.subject,
            replayed,
            self.measured.calls,
        )
        return replace(self._demanded(error), timed_cases=self.measured.timed_cases)

    def _demanded(self, error: Error) -> Error:
        return demanded(error, self.request.require, self.request.strict)

    def judge_decoding(self, comparison: DecodingComparison) -> None:
        """Compute the sequences in every way. Outputs that cannot be compared leave nothing to decode."""
        if not self.active or self.error is None or self.error.verdict == Verdict.INVALID:
            return
        with self._stage("decoding"):
            modes = self.subject.adapter.decoding_modes
            if modes is not None and self.subject.mode not in modes:
                raise Unsupported(f"a decoder runs as it is written: name {self.subject.adapter.label(modes[0])}")
            self.decoding = comparison.judge(self.label, self.worker)
            self.error = self._demanded(with_decoding(self.error, self.decoding))

    def judge_again(self, prepared: Prepared, truth: Truth) -> None:
        """Compare the weights and the last timed outputs of a later process run with the reference."""
        if not self.active or self.error is None or not self.timed.outputs:
            return
        with self._stage():
            later = self.wrong_weights(prepared)
            if later is None:
                later = judging.later_outputs(self.timed.outputs, truth, self.folder.spec, self.subject, self.replayed)
            if later.verdict > self.error.verdict:
                reason = f"in process run {self.run + 1}: {later.reason}"
                self.error = replace(later, reason=reason, timed_cases=self.error.timed_cases)

    def learner(self) -> Learner:
        """The record of this candidate for the training-parity checks. Its warm-up must be complete."""
        assert self.built is not None
        assert self.warmed is not None
        return learning.learner(self.subject, self.worker, self.built, self.warmed, self.request.match_optimizer)

    def judge_training(self, parity: learning.Parity[T], prepared: Prepared, observed: Future[T] | None) -> None:
        """Run the training-parity checks. When they cannot be run, the candidate fails, because its speed counts only with them."""
        if not self.alive or observed is None:
            return
        wrong = self.wrong_weights(prepared)
        if wrong is not None:
            self.error, self.training = wrong, parity.wrong_weights(wrong)
            return
        with self._stage("training-parity checks"):
            error, self.training = parity.judge(self.learner(), observed.result())
            self.error = self._demanded(error)

    def judge_training_again(self, parity: learning.Parity[Any], prepared: Prepared) -> None:
        """Judge the weights and one training step of a later process run."""
        if not self.active or self.error is None:
            return
        with self._stage():
            if self.wrong_weights(prepared) is not None:
                reason = "other weights after loading in a later process run"
                self.error = replace(self.error, verdict=Verdict.INVALID, reason=reason)
            else:
                self.error = parity.judge_again(self.learner(), self.error)

    # -- results ------------------------------------------------------------------------------------------------------

    def rows(self, speed: Speed | None) -> Iterator[Row]:
        """The rows of the report: one at each size, of which the first is timed."""
        row = self.row(speed)
        yield row
        for size, found in self.other_sizes:
            failed = isinstance(found, SubjectError)
            yield replace(
                row,
                subject=self._sized_label(size),
                batch=size.get("batch", row.batch),
                sizes=dict(size),
                status=found.status if isinstance(found, SubjectError) else "ok",
                reason=str(found) if failed else None,
                error=found if isinstance(found, Error) else None,
                speed=None,
                memory=Memory(),
            )

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do for it: it is judged, and no further process run is timed."""
        once = self.request.no_timing or EFFORTS[self.request.effort].most == 1
        return self.judged and once and (self.decoding is not None or not self.request.decodes)

    def first_size(self) -> Iterator[str]:
        """A sentence on the smallest size at which it differs; none where it differs at no size."""
        own = [(self.request.sizes, self.error)] if self.error is not None else []
        found = [
            AtSize(size, max(Verdict.EQUAL, error.verdict), where(error))
            for size, error in sorted([*own, *self.other_sizes], key=lambda each: order(each[0]))
            if isinstance(error, Error)
        ]
        return first_size(self.label, found)

    def row(self, speed: Speed | None) -> Row:
        """The row at the size that is timed."""
        return Row(
            subject=self.label,
            framework=self.subject.adapter.name,
            mode=self.subject.mode,
            task=self.request.task,
            device=self.request.device,
            batch=self.request.batch,
            status=self.failure.status if self.failure else "ok",
            reason=str(self.failure) if self.failure else None,
            weights_digest=(self.built.weights_digest or None) if self.built else None,
            weights_route=self.built.route if self.built else None,
            error=self.error,
            speed=speed,
            memory=self.measured.memory,
            environment=dict(self.started.environment) if self.started else {},
            training=self.training,
            decoding=self.decoding,
            precision=learning.precision(self.request, self.training),
            sizes=dict(self.request.sizes),
        )
