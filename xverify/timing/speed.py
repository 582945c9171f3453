"""From what the launches of all subjects left behind: the speed of each row, and the verdict on it."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from ..engine.candidate import Candidate
from ..results.records import Speed
from . import statistics as timing

MAX_RESTLESS = 0.3  # share of launches that may have begun before warm-up was over


def speeds(candidates: Sequence[Candidate], refused: str | None = None) -> list[Speed | None]:
    """One a candidate, in order; the first candidate is the baseline. refused: why no candidate's speed may be judged, or None."""
    baseline = candidates[0]
    figures = [_figures(candidate, baseline) for candidate in candidates]
    refusals = [refusal(candidate) for candidate in candidates]
    estimates = {}
    for candidate, why in zip(candidates[1:], refusals[1:]):
        logs = log_ratios(candidate, baseline)
        if why is None and len(logs) > 1:
            estimates[candidate.label] = timing.estimate(logs)
    verdicts = timing.verdicts(estimates)
    few = "one launch: no verdict on speed"
    if len(baseline.launches) > 1:
        few = "fewer than two launches could be compared with the baseline's"
    result: list[Speed | None] = []
    for candidate, found, why in zip(candidates, figures, refusals):
        if found is None:
            result.append(None)
            continue
        verdict, reason = verdicts.get(candidate.label, (None, few))
        if why or refused:
            verdict, reason = "REFUSED", why or refused
        elif candidate is baseline:
            verdict, reason = "BASELINE", None
        elif refusals[0] is not None:
            verdict, reason = None, f"no verdict beside a baseline that is refused: {refusals[0]}"
        noisy = verdict == "REFUSED" and fault(candidate) is None
        result.append(replace(found, verdict=verdict, reason=reason, noisy=noisy))
    return result


def log_ratios(candidate: Candidate, baseline: Candidate) -> list[float]:
    """For each launch the median over its rounds of log(time / the baseline's time)."""
    found = timing.log_ratios(timing.clean(candidate.samples), timing.clean(baseline.samples))
    return [statistics.median(logs) for logs in found.values()]


def _figures(candidate: Candidate, baseline: Candidate) -> Speed | None:
    if not candidate.samples:
        return None
    # --rerun N is N calls, whatever the machine did meanwhile; the ratio is of quiet rounds all the same.
    quiet = timing.clean(candidate.samples)
    counted = quiet if candidate.request.rerun is None else candidate.samples
    seconds = timing.seconds_per_call(counted)
    ratio = timing.ratio(quiet, timing.clean(baseline.samples))
    batch = candidate.request.batch
    launches = tuple(candidate.launches)
    retraces = [launch.retraces for launch in launches if launch.retraces is not None]
    first = launches[0] if launches else candidate.launched()
    return Speed(
        fps=batch / seconds.mean,
        fps_ci=(batch / seconds.high, batch / seconds.low if seconds.low > 0 else None),
        seconds_per_step=seconds.mean,
        elapsed_seconds=sum(sample.seconds for sample in counted),
        calls=sum(sample.calls for sample in counted),
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
        samples=tuple(candidate.samples),
        retraces=sum(retraces) if retraces else None,
        launches=launches,
        p99_seconds=timing.tail(counted),
    )


def refusal(candidate: Candidate) -> str | None:
    """Why the speed of this candidate is not to be counted, whatever it is; None when nothing speaks against it."""
    why = fault(candidate)
    restless = sum(launch.steady is False for launch in candidate.launches)
    if why is None and restless > MAX_RESTLESS * len(candidate.launches):
        return (
            f"NO_STEADY_STATE: in {restless} of {len(candidate.launches)} launches its calls still got faster or slower after "
            f"{max(launch.warmup_calls for launch in candidate.launches)} of them; say how many to wait for with --warmup"
        )
    return why


def fault(candidate: Candidate) -> str | None:
    """What is wrong with this candidate's speed that no further launch could mend; None when there is nothing."""
    if not candidate.samples:
        return None
    seconds = timing.seconds_per_call(timing.clean(candidate.samples)).mean
    if timing.unfinished(candidate.unfinished, seconds):
        return (
            f"{min(candidate.unfinished):.2g} s of computation were left after its wait, against {seconds:.2g} s a call "
            "timed: the adapter's wait does not wait for the outputs"
        )
    if candidate.error is None:
        return "its outputs were not compared"
    if candidate.error.verdict in ("DIFFERENT", "INVALID"):
        return "it does not compute the same"
    if not candidate.alive:
        return f"it ended in launch {candidate.launch + 1}: {candidate.failure}"
    retraces = sum(launch.retraces or 0 for launch in candidate.launches)
    if retraces:
        return (
            f"retraced {retraces} time{'s' * (retraces > 1)} while it was timed: its seconds hold compilation. "
            f"Let it meet every input case first (--warmup {candidate.request.cases} or more), and let no Python value that "
            "changes from call to call reach the graph"
        )
    growth = timing.vanished(candidate.samples)
    if growth is not None:
        return f"WORK_VANISHED: 2n calls take {growth:.2f} times what n take, so not every call does its work"
    if timing.amortised(candidate.alone, seconds):
        return (
            f"WORK_VANISHED: a call on a new input takes {candidate.alone:.2g} s, on the same input again {seconds:.2g} s: "
            "something remembers results"
        )
    return None
