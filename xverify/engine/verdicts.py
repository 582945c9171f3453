"""Judges the candidates of a run: their outputs and layers, or their training."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from itertools import zip_longest
from typing import Any, Protocol

from .. import host
from ..decoding.comparison import DecodingComparison
from ..reference import truth
from ..reference.build import Prepared, ReferenceProcess
from ..reference.layers import LayerReplay
from ..reference.replayed import ReplayedLayers
from ..reference.truth import Truth
from . import learning, replaying
from .budget import Clock
from .candidate import Candidate
from .other_sizes import OtherSizes, SizedReference


class Verdicts(Protocol):
    """The verdicts on the candidates of a run."""

    @property
    def truth(self) -> Truth | None:
        """What outputs are compared with; None where nothing was yet, and in training."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that the reference judges, as far as they are known."""

    def judge(
        self, new: Sequence[Candidate], candidates: Sequence[Candidate], prepared: Prepared, clock: Clock
    ) -> None:
        """Judge candidates that were not judged before. candidates: all of the run. prepared: weights in normal form."""

    def judge_so_far(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Judge what an interruption found half judged, without asking a process for anything."""

    def judge_again(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Judge the process run that was just timed of candidates that were judged before."""


class OutputVerdicts:
    """Judges outputs and layers.

    float32: the outputs of the reference. sized: the reference at other sizes.
    early: computes in float64 while the subjects run, where nothing is timed.
    """

    def __init__(
        self,
        process: ReferenceProcess,
        float32: truth.Outputs,
        sized: Sequence[SizedReference],
        background: Executor,
    ) -> None:
        self.process, self.float32, self.background = process, float32, background
        self.other_sizes = OtherSizes(sized)
        self.truth: Truth | None = None
        self.early: Future[Truth] | None = None
        self.replay: LayerReplay | None = None
        self.replayed: dict[replaying.BuildKey, ReplayedLayers] = {}

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that the reference judges."""
        return self.truth.layers if self.truth else ()

    def begin_early(self, prepared: Prepared) -> None:
        """Compute in float64 from now on, in the background."""
        self.early = self.background.submit(truth.evaluate, self.process, prepared, self.float32)

    def judge(
        self, new: Sequence[Candidate], candidates: Sequence[Candidate], prepared: Prepared, clock: Clock
    ) -> None:
        """Replay the layers of candidates, and compare their outputs with the reference."""
        exact = self.truth
        if exact is None:
            exact = self.early.result() if self.early else truth.evaluate(self.process, prepared, self.float32)
            self.truth = exact
        self.other_sizes.judge(new, prepared, exact, clock)
        replay = self.replay = self.replay or LayerReplay(self.process, prepared, exact.layers)
        counts = Counter(each.subject.build_key for each in candidates if each.alive)
        replaying.replay_all(new, replay, exact, clock, counts, self.replayed, self.background)
        self._compare(new, prepared, exact)
        cases = sorted({case for each in new for case in each.doubtful_cases})
        if cases:
            self.truth = exact = truth.measured_again(self.process, prepared, exact, tuple(cases))
            self._compare([each for each in new if each.doubtful_cases], prepared, exact)

    def judge_so_far(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Compare the outputs of candidates whose layers are judged: the run is interrupted."""
        replayed = [each for each in candidates if each.subject.build_key in self.replayed and not each.judged]
        if self.truth is not None:
            self._compare(replayed, prepared, self.truth)

    def _compare(self, candidates: Sequence[Candidate], prepared: Prepared, exact: Truth) -> None:
        """Compare the outputs of some candidates with the reference."""
        with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops release the interpreter's lock
            judged = [
                pool.submit(each.judge, prepared, exact, self.replayed.get(each.subject.build_key))
                for each in candidates
            ]
            for done in judged:
                done.result()

    def judge_again(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Compare the outputs of a later process run."""
        if self.truth is not None:
            for candidate in candidates:
                candidate.judge_again(prepared, self.truth)


class DecodingVerdicts(OutputVerdicts):
    """Judges outputs and layers of one pass, and then every way to compute the sequences."""

    def judge(
        self, new: Sequence[Candidate], candidates: Sequence[Candidate], prepared: Prepared, clock: Clock
    ) -> None:
        """Judge the outputs of candidates, and then their decoding."""
        super().judge(new, candidates, prepared, clock)
        if self.truth is None or self.truth.unusable:
            return
        comparison = DecodingComparison(self.process, prepared)
        for candidate in new:
            candidate.judge_decoding(comparison)
            candidate.worker.close()


def of_outputs(
    process: ReferenceProcess, float32: truth.Outputs, sized: Sequence[SizedReference], background: Executor
) -> OutputVerdicts:
    """What judges the outputs of a run, and its decoding where it asks for that. Arguments: see ``OutputVerdicts``."""
    kind = DecodingVerdicts if process.request.decodes else OutputVerdicts
    return kind(process, float32, sized, background)


class TrainingVerdicts:
    """Judges training. parity: the checks, once the reference is trained."""

    truth = None

    def __init__(self, process: ReferenceProcess, background: Executor) -> None:
        self.process, self.background = process, background
        self.parity: learning.Parity[Any] | None = None

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that the reference judges."""
        return tuple(self.parity.layers) if self.parity is not None else ()

    def judge(
        self, new: Sequence[Candidate], candidates: Sequence[Candidate], prepared: Prepared, clock: Clock
    ) -> None:
        """Judge the training of new candidates. During this, the next candidate captures its layers and makes its first step."""
        parity = self.parity = self.parity or self._parity(new, prepared, clock)

        def observe(candidate: Candidate | None) -> Future[Any] | None:
            if candidate is None or not candidate.alive:
                return None
            return self.background.submit(parity.observe, candidate.learner())

        observed = observe(new[0]) if new else None
        for candidate, following in zip_longest(new, new[1:]):
            if observed is not None:
                wait([observed])
            coming = observe(following)
            candidate.judge_training(parity, prepared, observed)
            candidate.worker.close()
            observed = coming

    def judge_so_far(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Nothing: each candidate is judged on its own."""

    def _parity(self, new: Sequence[Candidate], prepared: Prepared, clock: Clock) -> learning.Parity[Any]:
        """The checks, for which the reference is trained.

        A candidate that runs the reference's own code shows how long a step takes. Else the reference makes two steps.
        """
        parity = learning.parity(self.process, prepared)
        own = (self.process.framework, "eager")
        alone = [each for each in new if each.active and each.subject.ranks is None]
        same = [each for each in alone if (each.subject.adapter.called(), each.subject.mode) == own]
        parity.prepare(seconds=max((each.seconds_per_call for each in same), default=0.0), left=clock.left)
        parity.prepare_more(clock.left)
        return parity

    def judge_again(self, candidates: Sequence[Candidate], prepared: Prepared) -> None:
        """Judge one training step of a later process run."""
        if self.parity is not None:
            for candidate in candidates:
                candidate.judge_training_again(self.parity, prepared)
