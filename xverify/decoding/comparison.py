"""Computes the sequences of a decoder in every way, and compares each with the reference's full pass in float64."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from ..errors import Refused
from ..framework.decoding import Way
from ..messages.decoding import ComputeMistaken, ComputeWay, Continue, FindDecoder, LocateStep
from ..messages.reference import NoiseFloors
from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess
from ..results.decoding import Decoding, DecodingCheck
from ..results.figures import shown_limit
from ..results.records import Error
from ..results.verdicts import Verdict
from ..verdict.limits import CAP
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from ..workload.decoding import sequences_of
from ..workload.keys import case_key
from .judging import TIE, Exact, Judged, judge, judge_tokens
from .ways import PADDED, PAIRS, ways

SEQUENCES = 3  # that are computed together
SAMPLES = 4  # perturbed passes that measure the noise of every position
NEARER = 8.0  # how much nearer the values must be to those of a mistake that rounds than to the right ones
MOST = 3  # mistakes that are named where several fit
BLIND = "rounding is so large here that a relative error below {} would not have shown"  # of a way that is UNTESTED
FREE = "greedy, free"  # the name of the check of freely chosen tokens


@dataclass(frozen=True)
class Truths:
    """What the reference computes in float64. inputs: the file of the sequences. whole: of whole ones. padded: of shorter ones."""

    inputs: Path
    whole: Exact
    padded: Exact


@dataclass
class Causes:
    """The search for causes of a subject. found: those of an earlier way, which alone are tried for later ones. seconds: left."""

    found: list[str] = field(default_factory=list)
    seconds: float = 60.0


class DecodingComparison:
    """Compares the ways of all subjects of a run. The reference's sequences are made once."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared) -> None:
        self.process, self.prepared = process, prepared
        self.sequences = sequences_of(process.folder)
        self.prompt = self.sequences.length // 2
        self.space = process.worker.folder
        self.prepared_for: dict[bool, Truths] = {}

    def prepare(self, encoder: bool) -> Truths:
        """Let the reference continue the prompts, and compute every position in float64, with its noise.

        encoder: whether the model has no cache: then all tokens are drawn, and those of a padded sequence are a case of its own.
        """
        if encoder not in self.prepared_for:
            inputs = self.space / f"sequences-{'drawn' if encoder else 'continued'}.npz"
            process, key = self.process, case_key(0, self.sequences.tokens)
            drawn = probe.inputs(process.folder.spec, SEQUENCES, process.request.seed, 1)
            prompts = self.space / "prompts.npz"
            npz.save_file({**drawn, key: drawn[key][:, : self.prompt]}, prompts)
            if encoder:
                npz.save_file({**drawn, **self._shorter(drawn)}, inputs)
            else:
                process.phase("continuing three sequences in float64")
                weights = str(self.prepared.weights)
                process.worker.ask(Continue(str(prompts), str(inputs), self.sequences.length, weights))
            self.prepared_for[encoder] = self._truths(inputs)
        return self.prepared_for[encoder]

    def _shorter(self, drawn: Mapping[str, Array]) -> dict[str, Array]:
        """A case for each sequence without the tokens that padding leaves out of it. drawn: the first case, with all sequences."""
        spec, cases = self.process.folder.spec, dict[str, Array]()
        for row in range(SEQUENCES):
            kept = self.sequences.length - PADDED.missing(row, self.sequences.length)
            for name in spec.inputs:
                array = drawn[case_key(0, name)][row : row + 1]
                cases[case_key(row + 1, name)] = array[:, :kept] if name == self.sequences.tokens else array
        return cases

    def _truths(self, inputs: Path) -> Truths:
        """What the reference computes in float64 for an array file of sequences."""
        values, noise = inputs.with_suffix(".values.npz"), inputs.with_suffix(".noise.npz")
        self.process.worker.ask(
            NoiseFloors(
                inputs=str(inputs), path=str(values), noise=str(noise), weights=str(self.prepared.weights),
                seed=self.process.request.seed, samples=SAMPLES,
            )
        )  # fmt: skip
        tokens = npz.load_file(inputs)[case_key(0, self.sequences.tokens)]
        arrays = [npz.load_file(path) for path in (values, noise)]
        whole, *shorter = (
            [found[case_key(case, self.sequences.output)] for found in arrays]
            for case in range(len(arrays[0]) // len(self.process.folder.spec.outputs))
        )
        padded = [array.copy() for array in whole]
        for row, each in enumerate(shorter):
            for array, short in zip(padded, each):
                array[row, : short.shape[1]] = short[0]
        return Truths(inputs, Exact(tokens, *whole), Exact(tokens, *padded))

    def judge(self, label: str, worker: Worker) -> Decoding:
        """Compute all ways of a subject. Raises SubjectError when its model is no decoder."""
        offers = worker.ask(FindDecoder())
        truths = self.prepare(bool(offers.lacks))
        tried, not_tried = ways(offers, self.sequences.length, self.process.request.threads, bool(self.sequences.more))
        checks, found, causes = list[DecodingCheck](), dict[str, Array](), Causes()
        for way in tried:
            self.process.listener.phase(label, f"computing: {way.name}")
            check, values = self._check(worker, way, truths, len(checks), causes)
            if values is None:
                not_tried[way.name] = check.says
                continue
            found[way.name] = values
            other = found.get(PAIRS.get(way.name, ""))
            same = None if other is None or not values.size else bool(np.array_equal(values, other, equal_nan=True))
            checks.append(replace(check, same_bits=same))
        if offers.lacks:
            prompt, not_tried[FREE] = self.sequences.length, offers.lacks
        else:
            prompt = self.prompt
            checks.append(self._free(worker, truths.whole))
        return Decoding(SEQUENCES, self.sequences.length, prompt, tuple(checks), not_tried)

    def _check(
        self, worker: Worker, way: Way, truths: Truths, number: int, causes: Causes
    ) -> tuple[DecodingCheck, Array | None]:
        """(the check of a way, its values); without values, the check says why there are none."""
        path = worker.folder / f"way-{number}.npz"
        exact = truths.padded if way.padding else truths.whole
        known = sum(self.sequences.length - each for each in self._missing(way))
        try:
            reply = worker.ask(ComputeWay(str(truths.inputs), str(path), way))
        except Refused as error:
            return DecodingCheck(way.name, Verdict.INVALID, known=known, says=str(error)), np.empty(0)
        if reply.problem:
            return DecodingCheck(way.name, Verdict.UNTESTED, says=reply.problem), None
        values = npz.load_file(path)["logits"]
        if values.shape != exact.values.shape:
            says = f"it returns values of shape {values.shape}, and the reference {exact.values.shape}"
            return DecodingCheck(way.name, Verdict.INVALID, known=known, says=says), values
        judged = judge(values, exact, self._missing(way))
        check = DecodingCheck(
            way.name, judged.verdict, judged.ratio, judged.worst, judged.limit, judged.compared, known
        )
        if judged.first is not None:
            check = replace(check, explanation=self._explanation(way, values, truths, judged.first, causes))
        return self._told(check, judged, way, worker, truths.inputs, reply.remark), values

    def _explanation(self, way: Way, found: Array, truths: Truths, first: tuple[int, int], causes: Causes) -> str:
        """The known mistakes with which the reference computes the same values, in words; "" for none.

        Each mistake is computed up to the first step that differs, and those that fit there are computed to the end.
        first: the sequence and the position of that step.
        """
        step = first[1]
        fitting = self._fitting(way, found, truths, causes, causes.found, step)
        if fitting:
            fitting = self._fitting(way, found, truths, causes, fitting, self.sequences.length)
        causes.found = fitting or causes.found
        return f"it behaves as if {' or '.join(fitting[:MOST])}" if fitting else ""

    def _fitting(
        self, way: Way, found: Array, truths: Truths, causes: Causes, only: Sequence[str], step: int
    ) -> list[str]:
        """The mistakes with which the reference computes the same values up to this step.

        There is none where the reference itself differs from its full pass. only: these are tried; empty: all.
        """
        exact, path = truths.padded if way.padding else truths.whole, self.space / "mistaken.npz"
        left_out = self._missing(way)
        request = ComputeMistaken(
            str(truths.inputs),
            str(path),
            way,
            str(self.prepared.weights),
            causes.seconds,
            step + max(left_out),
            tuple(only),
        )
        begun = time.monotonic()
        try:
            made = self.process.worker.ask(request) if causes.seconds > 0 else ()
        except Refused:  # the way differs all the same
            return []
        causes.seconds -= time.monotonic() - begun
        arrays, fitting = npz.load_file(path) if made else {}, list[str]()
        missing = [max(each, self.sequences.length - 1 - step) for each in left_out]
        ratio = judge(found, exact, missing).ratio
        for number, mistake in enumerate(made):
            mistaken = arrays[str(number)]
            if not mistake.says and judge(mistaken, exact, missing).verdict != Verdict.EQUAL:
                return []
            judged = judge(found, replace(exact, values=mistaken), missing)
            if judged.verdict == Verdict.EQUAL or (mistake.rounds and judged.ratio * NEARER < ratio):
                fitting.append(mistake.says)
        return fitting

    def _missing(self, way: Way) -> list[int]:
        return [way.missing(sequence, self.sequences.length) for sequence in range(SEQUENCES)]

    def _told(
        self, check: DecodingCheck, judged: Judged, way: Way, worker: Worker, inputs: Path, remark: str
    ) -> DecodingCheck:
        """The check with the place of what differs, and with the sentence on it."""
        if judged.token is not None:
            sequence, step, margin = judged.token
            check = replace(check, token=step, margin=margin, says=token_says(sequence, step, margin))
        if judged.verdict == Verdict.UNTESTED:
            return replace(check, says=BLIND.format(shown_limit(judged.limit)))
        if judged.first is None:
            return check
        sequence, step = judged.first
        place = self._place(worker, way, inputs, judged.first)
        where = f", first in {place}" if place else ""
        says = f"step {step} of sequence {sequence} differs by {self._ratio(judged)}{where}"
        says = "; ".join(filter(None, (says, check.explanation, remark, check.says)))
        return replace(check, sequence=sequence, step=step, place=place, says=says)

    def _ratio(self, judged: Judged) -> str:
        return (
            f"{judged.worst:.3g} noise floors at the worst step"
            if np.isfinite(judged.worst)
            else "a value that is not finite"
        )

    def _place(self, worker: Worker, way: Way, inputs: Path, first: tuple[int, int]) -> str:
        try:
            return worker.ask(LocateStep(str(inputs), way, *first))
        except Refused:  # the step differs all the same
            return ""

    def _free(self, worker: Worker, exact: Exact) -> DecodingCheck:
        """The tokens that the subject chooses freely, with its cache, after the same prompts."""
        path, known = worker.folder / "continued.npz", SEQUENCES * (self.sequences.length - self.prompt)
        try:
            worker.ask(Continue(str(self.space / "prompts.npz"), str(path), self.sequences.length))
        except Refused as error:
            return DecodingCheck(FREE, Verdict.INVALID, known=known, says=str(error))
        tokens = npz.load_file(path)[case_key(0, self.sequences.tokens)]
        differs = judge_tokens(tokens, exact, self.prompt)
        limit = exact.detection_limit(np.ones(exact.tokens.shape, bool))
        check = DecodingCheck(FREE, Verdict.EQUAL, None, None, limit, known, known)
        if differs is not None:
            sequence, step, margin = differs
            says = token_says(sequence, step, margin)
            check = replace(check, sequence=sequence, step=step, says=says, token=step, margin=margin)
            if margin > TIE:
                return replace(check, verdict=Verdict.DIFFERENT)
        return (
            check if limit <= CAP else replace(check, verdict=Verdict.UNTESTED, says=BLIND.format(shown_limit(limit)))
        )


def token_says(sequence: int, step: int, margin: float) -> str:
    """A sentence on the first token that differs. margin: in noise floors."""
    distance = f"at step {step} of sequence {sequence}, another token is the best one, {margin:.2g} noise floors away"
    return f"{distance}: rounding decides" if margin <= TIE else distance


def with_decoding(error: Error, decoding: Decoding) -> Error:
    """The error of the outputs together with what the ways show."""
    worst = Verdict.worst([each.verdict for each in decoding.ways], Verdict.EQUAL)
    if worst <= error.verdict or worst <= Verdict.EQUAL:
        return replace(error, verdict=max(error.verdict, worst))
    first = decoding.first
    reason = f"{first.name}: {first.says}" if first is not None else None
    return replace(error, verdict=worst, reason="; ".join(filter(None, (reason, error.reason))) or None)
