"""Computes the speed of each row, and the verdict on it, from the samples of all process runs. Every function is pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..results.records import ProcessRun, Sample, Speed
from ..results.verdicts import SpeedVerdict, Verdict
from . import bounds
from . import statistics as timing
from .noise import SPEED_CHANGED

MAX_UNSTEADY = 0.3  # share of process runs that may have been timed before their warm-up was over


@dataclass(frozen=True)
class Refusal:
    """Why a speed is not counted. short: in a few words, for a cell of a table. reason: in a sentence."""

    short: str
    reason: str


@dataclass(frozen=True)
class Measurements:
    """The measurements from which the speed of one candidate is computed.

    subject: the candidate's name, e.g. ``torch:eager``.
    batch: number of items in a call.
    cases: number of input cases of the run.
    samples: every timed block, of all process runs.
    process_runs: the finished process runs.
    current: the process run that is being timed; None when there is none.
    verdict: the verdict on its numbers; None while they have not been compared.
    ended: why the candidate ended early; None when it did not.
    unfinished: for each kept block, how much longer the first reading of its outputs took than the second, in seconds.
    new_input_seconds: the fastest single call on another input than the call before, in seconds; 0.0 when not measured.
    new_input_pairs: seconds of such a call, and of the same call again, where they were measured again without noise.
    """

    subject: str
    batch: int
    cases: int
    samples: tuple[Sample, ...] = ()
    process_runs: tuple[ProcessRun, ...] = ()
    current: ProcessRun | None = None
    verdict: Verdict | None = None
    ended: str | None = None
    unfinished: tuple[float, ...] = ()
    new_input_seconds: float = 0.0
    new_input_pairs: tuple[tuple[float, float], ...] = ()

    @property
    def unavoidable_seconds(self) -> float:
        """Seconds that the subject needs by itself in all process runs: import, build, first steps, warm-up, timed calls."""
        own = sum(
            run.import_seconds
            + run.build_seconds
            + run.first_step_seconds
            + run.second_step_seconds
            + run.warmup_seconds
            for run in self.process_runs
        )
        return own + sum(sample.seconds for sample in self.samples)


def speeds(candidates: Sequence[Measurements], refused: str | None = None) -> list[Speed | None]:
    """The speed of every candidate, in order; the first candidate is the baseline.

    refused: why no speed of this run may be judged, for example because the machine was too noisy; None when it may.
    """
    baseline = candidates[0]
    figures = [_figures(each, baseline) for each in candidates]
    refusals = [refusal(each) for each in candidates]
    estimates = {}
    for each, why in zip(candidates[1:], refusals[1:]):
        logs = log_ratios(each, baseline)
        if why is None and len(logs) > 1:
            estimates[each.subject] = timing.estimate(logs)
    verdicts = timing.verdicts(estimates)
    noisy = Refusal("TOO NOISY", refused) if refused else None
    few = "one process run: no verdict on speed"
    if len(baseline.process_runs) > 1:
        few = "fewer than two process runs could be compared with the baseline's"
    result: list[Speed | None] = []
    for each, speed, own in zip(candidates, figures, refusals):
        claim, reason = verdicts.get(each.subject, (None, few))
        verdict, why = SpeedVerdict(claim) if claim else None, own or noisy
        if why is None and verdict == SpeedVerdict.REFUSED:
            why = Refusal("process runs differ", reason or "")
        if why is None and each is baseline:
            verdict, reason = SpeedVerdict.BASELINE, None
        elif why is None and refusals[0] is not None:
            verdict, reason = None, f"no verdict beside a baseline that is refused: {refusals[0].reason}"
        speed = speed and replace(speed, verdict=verdict, reason=reason)
        result.append(_refused(speed, each, why, why is noisy) if speed and why else speed)
    return result


def _refused(speed: Speed, candidate: Measurements, why: Refusal, noisy: bool) -> Speed:
    """A speed that does not count. noisy: whether the machine was too noisy, so that the speed still has bounds."""
    for_noise = fault(candidate) is None
    least, most = bounded(candidate) if for_noise and noisy else (None, None)
    return replace(
        speed,
        verdict=SpeedVerdict.REFUSED,
        reason=why.reason,
        noisy=for_noise,
        not_counted=why.short,
        at_least=least,
        at_most=most,
    )


def bounded(candidate: Measurements) -> tuple[float | None, float | None]:
    """Bounds of the undisturbed items per second: (at least, at most); see ``bounds``."""
    runs = candidate.process_runs
    fastest = [run.fastest_seconds for run in runs if run.fastest_seconds is not None]
    if not fastest:  # the fastest blocks, but none in which the machine may have been faster than usual
        steady = [each for each in candidate.samples if SPEED_CHANGED not in (each.dropped or "")]
        blocks = timing.by_process_run(steady).values()
        fastest = [bounds.low([each.seconds / each.calls for each in found]) for found in blocks]
    least = [run.least_seconds for run in runs if run.least_seconds is not None]
    return bounds.at_least(fastest, candidate.batch), candidate.batch / min(least) if least else None


def log_ratios(candidate: Measurements, baseline: Measurements) -> list[float]:
    """For each process run, the median over its rounds of log(time / the baseline's time)."""
    found = timing.log_ratios(timing.clean(candidate.samples), timing.clean(baseline.samples))
    return [statistics.median(logs) for logs in found.values()]


def _figures(candidate: Measurements, baseline: Measurements) -> Speed | None:
    """The figures without a verdict; None when nothing was timed."""
    first = next(iter(candidate.process_runs), candidate.current)
    if not candidate.samples or first is None:
        return None
    # Speed and ratio use the same rounds, those without noise, and the same estimator. So they cannot contradict each other.
    quiet, others = timing.clean(candidate.samples), timing.clean(baseline.samples)
    seconds = timing.seconds_per_call(quiet, () if candidate is baseline else others)
    ratio = timing.ratio(quiet, others)
    retraces = [run.retraces for run in candidate.process_runs if run.retraces is not None]
    return Speed(
        fps=candidate.batch / seconds.mean,
        fps_ci=(candidate.batch / seconds.high, candidate.batch / seconds.low if seconds.low > 0 else None),
        seconds_per_step=seconds.mean,
        elapsed_seconds=math.fsum(sample.seconds for sample in candidate.samples),
        calls=sum(sample.calls for sample in candidate.samples),
        warmup_calls=first.warmup_calls,
        ratio=ratio.mean if ratio else None,
        ratio_ci=(ratio.low, ratio.high) if ratio else (None, None),
        verdict=None,
        reason=None,
        first_step_seconds=first.first_step_seconds,
        second_step_seconds=first.second_step_seconds,
        compile_seconds=max(0.0, first.first_step_seconds - first.second_step_seconds),
        import_seconds=first.import_seconds,
        build_seconds=first.build_seconds,
        samples=candidate.samples,
        retraces=sum(retraces) if retraces else None,
        launches=candidate.process_runs,
        p99_seconds=timing.tail(quiet),
    )


def refusal(candidate: Measurements) -> Refusal | None:
    """Why this candidate's speed gets the verdict REFUSED; None when there is no reason."""
    why = fault(candidate)
    runs = candidate.process_runs
    unsteady = sum(run.steady is False for run in runs)
    if why is None and unsteady > MAX_UNSTEADY * len(runs):
        return Refusal(
            "NO_STEADY_STATE",
            f"NO_STEADY_STATE: in {unsteady} of {len(runs)} process runs the time of a call had not become steady after "
            f"{max(run.warmup_calls for run in runs)} calls of warm-up; say how many to wait for with --warmup",
        )
    return why


def fault(candidate: Measurements) -> Refusal | None:
    """What is wrong with this candidate's speed, where more process runs would not help; None when nothing is wrong."""
    if not candidate.samples:
        return None
    seconds = timing.seconds_per_call(timing.clean(candidate.samples)).mean
    if timing.unfinished(candidate.unfinished, seconds):
        return Refusal(
            "its wait does not wait",
            f"{min(candidate.unfinished):.2g} s of computation were left after its wait, against {seconds:.2g} s a call "
            "timed: the adapter's wait does not wait for the outputs",
        )
    if candidate.verdict is None:
        return Refusal("outputs not compared", "its outputs were not compared")
    if candidate.verdict.fails:
        return Refusal(str(candidate.verdict.value), "it does not compute the same")
    if candidate.ended:
        return Refusal("ended early", candidate.ended)
    retraces = sum(run.retraces or 0 for run in candidate.process_runs)
    if retraces:
        return Refusal(
            "retraced while timed",
            f"retraced {retraces} time{'s' * (retraces > 1)} while it was timed: its times include compilation. "
            f"Let it see every input case first (--warmup {candidate.cases} or more), and let no Python value that "
            "changes from call to call reach the graph",
        )
    skipped = _skipped_work(candidate, seconds)
    return Refusal("WORK_VANISHED", skipped) if skipped else None


def _skipped_work(candidate: Measurements, seconds: float) -> str | None:
    """The figures that show calls without their work; None when they were not seen twice. seconds: duration of a timed call."""
    again = [sample for run in candidate.process_runs for sample in run.repeated_blocks]
    first, growth = timing.vanished(candidate.samples), timing.vanished(again)
    if first is not None and growth is not None:
        return (
            f"WORK_VANISHED: 2n calls take {first.ratio:.2f} times as long as n calls, and {growth.ratio:.2f} times when timed "
            f"again. A block of {growth.calls} calls takes {growth.fixed:.2g} s whatever its calls, and one more call adds "
            f"{growth.call:.2g} s"
        )
    pair = timing.remembered(candidate.new_input_pairs, seconds)
    if pair is not None:
        return (
            f"WORK_VANISHED: a call on a new input takes {candidate.new_input_seconds:.2g} s, and {seconds:.2g} s in a block on "
            f"one input. Seen again: {pair[0]:.2g} s on a new input, and {pair[1]:.2g} s when that call is repeated (medians of "
            f"{len(candidate.new_input_pairs)} pairs)"
        )
    return None
