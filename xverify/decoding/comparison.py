"""Computes the sequences of a decoder in every way, and compares each with the reference's full pass in float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from ..errors import Refused
from ..messages.decoding import ComputeWay, Continue, FindDecoder, LocateStep, Way
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
from .ways import PAIRS, ways

SEQUENCES = 3  # that are computed together
SAMPLES = 4  # perturbed passes that measure the noise of every position
BLIND = "rounding is so large here that a relative error below {} would not have shown"  # of a way that is UNTESTED
FREE = "greedy, free"  # the name of the check of freely chosen tokens


class DecodingComparison:
    """Compares the ways of all subjects of a run. The reference's sequences are made once."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared) -> None:
        self.process, self.prepared = process, prepared
        self.sequences = sequences_of(process.folder)
        self.prompt = self.sequences.length // 2
        self.space = process.worker.folder
        self.exact: Exact | None = None

    @property
    def inputs(self) -> Path:
        """The file of the sequences."""
        return self.space / "sequences.npz"

    def prepare(self) -> Exact:
        """Let the reference continue the prompts, and compute every position in float64, with its noise."""
        if self.exact is not None:
            return self.exact
        process, key = self.process, case_key(0, self.sequences.tokens)
        drawn = probe.inputs(process.folder.spec, SEQUENCES, process.request.seed, 1)[key]
        prompts, weights = self.space / "prompts.npz", str(self.prepared.weights)
        npz.save_file({key: drawn[:, : self.prompt]}, prompts)
        process.phase("continuing three sequences in float64")
        process.worker.ask(Continue(str(prompts), str(self.inputs), self.sequences.length, weights))
        values, noise = self.space / "sequences-values.npz", self.space / "sequences-noise.npz"
        process.worker.ask(
            NoiseFloors(
                inputs=str(self.inputs), path=str(values), noise=str(noise), weights=weights, seed=process.request.seed,
                samples=SAMPLES,
            )
        )  # fmt: skip
        output = case_key(0, self.sequences.output)
        self.exact = Exact(*(npz.load_file(path)[name] for path, name in (
            (self.inputs, key), (values, output), (noise, output)
        )))  # fmt: skip
        return self.exact

    def judge(self, label: str, worker: Worker) -> Decoding:
        """Compute all ways of a subject. Raises SubjectError when its model is no decoder."""
        offers = worker.ask(FindDecoder())
        exact = self.prepare()
        tried, not_tried = ways(offers, self.sequences.length, self.process.request.threads)
        checks, found = list[DecodingCheck](), dict[str, Array]()
        for way in tried:
            self.process.listener.phase(label, f"computing: {way.name}")
            check, values = self._check(worker, way, exact, len(checks))
            if values is None:
                not_tried[way.name] = check.says
                continue
            found[way.name] = values
            other = found.get(PAIRS.get(way.name, ""))
            same = None if other is None or not values.size else bool(np.array_equal(values, other, equal_nan=True))
            checks.append(replace(check, same_bits=same))
        checks.append(self._free(worker, exact))
        return Decoding(SEQUENCES, self.sequences.length, self.prompt, tuple(checks), not_tried)

    def _check(self, worker: Worker, way: Way, exact: Exact, number: int) -> tuple[DecodingCheck, Array | None]:
        """(the check of a way, its values); without values, the check says why there are none."""
        path = worker.folder / f"way-{number}.npz"
        known = sum(self.sequences.length - each for each in self._missing(way))
        try:
            reply = worker.ask(ComputeWay(str(self.inputs), str(path), way))
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
        return self._told(check, judged, way, worker, reply.remark), values

    def _missing(self, way: Way) -> list[int]:
        return [way.missing(sequence, self.sequences.length) for sequence in range(SEQUENCES)]

    def _told(self, check: DecodingCheck, judged: Judged, way: Way, worker: Worker, remark: str) -> DecodingCheck:
        """The check with the place of what differs, and with the sentence on it."""
        if judged.token is not None:
            sequence, step, margin = judged.token
            check = replace(check, token=step, margin=margin, says=token_says(sequence, step, margin))
        if judged.verdict == Verdict.UNTESTED:
            return replace(check, says=BLIND.format(shown_limit(judged.limit)))
        if judged.first is None:
            return check
        sequence, step = judged.first
        place = self._place(worker, way, sequence, step)
        where = f", first in {place}" if place else ""
        says = f"step {step} of sequence {sequence} differs by {self._ratio(judged)}{where}"
        return replace(
            check, sequence=sequence, step=step, place=place, says="; ".join(filter(None, (says, remark, check.says)))
        )

    def _ratio(self, judged: Judged) -> str:
        return (
            f"{judged.worst:.3g} noise floors at the worst step"
            if np.isfinite(judged.worst)
            else "a value that is not finite"
        )

    def _place(self, worker: Worker, way: Way, sequence: int, step: int) -> str:
        try:
            return worker.ask(LocateStep(str(self.inputs), way, sequence, step))
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
