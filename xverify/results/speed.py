"""Records of the speed and the memory of a row, and of the timed blocks that they come from."""

from __future__ import annotations

from dataclasses import dataclass

from .verdicts import SpeedVerdict, settle_verdict

FULL = 0.9  # share of a device's memory above which it is nearly full


@dataclass(frozen=True)
class Sample:
    """One timed block.

    round, case: index of the round, and of the input case.
    calls: number of calls in the block.
    seconds: duration of all these calls together.
    launch: index of the process run.
    dropped: why its round does not count; None when it counts.
    """

    round: int
    case: int
    calls: int
    seconds: float
    launch: int = 0
    dropped: str | None = None


@dataclass(frozen=True)
class ProcessRun:
    """One process run of a subject, from the start of the process to its last timed block.

    launch: index of the process run.
    steady: whether the call time had become steady when warm-up ended; None when the user gave the number of calls.
    retraces: number of graphs that were made during timing; None for a mode that makes no graphs.
    faults_per_call: page faults per call.
    repeated_blocks: blocks that were timed again to confirm that 2n calls take less than twice the time of n calls.
    fastest_seconds, least_seconds: bounds of the seconds of a call, on a machine that is too busy to measure it: those of the
        fastest calls, and those that no disturbance explains; None where they were not measured.
    """

    launch: int
    import_seconds: float
    build_seconds: float
    first_step_seconds: float
    second_step_seconds: float
    warmup_calls: int
    warmup_seconds: float
    steady: bool | None = None
    retraces: int | None = None
    faults_per_call: float | None = None
    repeated_blocks: tuple[Sample, ...] = ()
    fastest_seconds: float | None = None
    least_seconds: float | None = None


@dataclass(frozen=True)
class Speed:
    """The speed of a row.

    fps: items per second in quiet rounds; fps = batch / seconds_per_step.
    seconds_per_step: of a call in quiet rounds: the baseline's own, and in other rows the baseline's times ``ratio``.
    elapsed_seconds, calls: totals of all timed rounds, also of noisy ones. So seconds_per_step is not their quotient.
    ratio: time of the row / time of the baseline, paired by round; above one is slower.
    fps_ci, ratio_ci: 95% intervals; None for an end that is unknown.
    verdict: None when there are too few process runs.
    reason: why there is no verdict, or why it is REFUSED or AMBIGUOUS; None when no reason is needed.
    warmup_calls, first_step_seconds, second_step_seconds, import_seconds, build_seconds: of the first process run.
    retraces: number of graphs that were made during timing in all process runs; None for a mode that makes no graphs.
    compile_seconds: how much longer the first step took than the second.
    p99_seconds: 99th percentile of the seconds of a call; None when fewer than 1,000 single calls were timed.
    noisy: whether the verdict is REFUSED for noise alone.
    counted: whether the speed is a measurement; False when the verdict is REFUSED.
    not_counted: why it is not counted, in a few words; None when it is. ``reason`` is the whole sentence.
    at_least, at_most: bounds of the undisturbed items per second where the machine was too busy to measure them, and no verdict;
        None where there is none.
    """

    fps: float
    fps_ci: tuple[float | None, float | None]
    seconds_per_step: float
    elapsed_seconds: float
    calls: int
    warmup_calls: int
    ratio: float | None
    ratio_ci: tuple[float | None, float | None]
    verdict: SpeedVerdict | None
    reason: str | None
    first_step_seconds: float
    second_step_seconds: float
    import_seconds: float
    build_seconds: float
    samples: tuple[Sample, ...]
    retraces: int | None = None
    compile_seconds: float | None = None
    launches: tuple[ProcessRun, ...] = ()
    p99_seconds: float | None = None
    noisy: bool = False
    counted: bool = True
    not_counted: str | None = None
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        if self.verdict is not None:
            settle_verdict(self, SpeedVerdict)
        refused = self.verdict == SpeedVerdict.REFUSED  # files of earlier versions say no more
        object.__setattr__(self, "counted", not refused)
        object.__setattr__(self, "not_counted", (self.not_counted or "REFUSED") if refused else None)


@dataclass(frozen=True)
class Memory:
    """The memory of a row's process, MiB.

    peak_rss_mib: greatest resident memory until outputs are first read.
    average_rss_mib: mean resident memory.
    import_rss_mib: resident memory after the import of the framework.
    gpu_peak_mib: peak of the device's memory, as the framework counts it.
    gpu_process_mib: memory of the device that the process uses, as the driver counts it.
    gpu_used_mib, gpu_total_mib: memory of the device that all processes used at that time, and its total.
    """

    peak_rss_mib: float | None = None
    average_rss_mib: float | None = None
    import_rss_mib: float | None = None
    gpu_peak_mib: float | None = None
    gpu_process_mib: float | None = None
    gpu_used_mib: float | None = None
    gpu_total_mib: float | None = None

    @property
    def nearly_full(self) -> bool:
        """Whether so little memory of the device was free that a framework may have paged, or worked in smaller parts."""
        return bool(self.gpu_total_mib and self.gpu_used_mib and self.gpu_used_mib > FULL * self.gpu_total_mib)
