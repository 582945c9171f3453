"""The speed of rows from known samples: speed and time ratio agree, and a speed that is refused is not counted."""

from __future__ import annotations

import random
import statistics

import pytest

from xverify.results.records import ProcessRun, Sample
from xverify.results.verdicts import Verdict
from xverify.timing.speed import Measurements, speeds


def measured(subject, samples, verdict=Verdict.EQUAL, **changes):
    launches = sorted({sample.launch for sample in samples})
    steady = changes.pop("steady", True)
    runs = tuple(ProcessRun(launch, 1.0, 1.0, 0.1, 0.1, 8, 0.5, steady) for launch in launches)
    return Measurements(subject, 4, 4, samples=tuple(samples), process_runs=runs, verdict=verdict, **changes)


def rounds(seconds, noisy, generator, launches=1, calls=5):
    """One block a round; the machine's speed changes from round to round, and noisy rounds take three times as long."""
    return [
        Sample(index, index % 4, calls, calls * seconds * drift * generator.gauss(1, 0.01) * (3 if index in noisy else 1),
               launch, "other processes" if index in noisy else None)
        for launch in range(launches)
        for index in range(16)
        for drift in [1 + 0.05 * ((index * 7 + launch * 3) % 5)]
    ]  # fmt: skip


@pytest.mark.parametrize("launches", [1, 6])
def test_speed_and_time_ratio_never_contradict_each_other(launches):
    generator = random.Random(launches)
    noisy = {2, 3, 7, 11}
    first, second = (rounds(seconds, noisy, generator, launches) for seconds in (1e-2, 1.2e-2))
    # A noisy round that disturbs the first subject alone: over all rounds, its mean is as long as that of the second.
    first = [Sample(s.round, s.case, s.calls, s.seconds * (2 if s.dropped else 1), s.launch, s.dropped) for s in first]
    one, two = speeds([measured("one", first), measured("two", second)])
    assert one.fps / two.fps == pytest.approx(two.ratio, rel=1e-12)
    assert two.ratio == pytest.approx(1.2, rel=0.02)
    for found, samples in ((one, first), (two, second)):
        assert found.fps == pytest.approx(4 / found.seconds_per_step)
        quiet = [sample.seconds / sample.calls for sample in samples if not sample.dropped]
        assert found.seconds_per_step == pytest.approx(statistics.median(quiet), rel=0.02)
        low, high = found.fps_ci
        assert low < found.fps < high
        assert found.elapsed_seconds == pytest.approx(sum(sample.seconds for sample in samples))
        assert found.calls == 5 * len(samples)
        assert found.elapsed_seconds / found.calls > 1.2 * found.seconds_per_step, "the sum has the noisy rounds, too"


def test_a_subject_without_a_common_round_has_its_own_median():
    generator = random.Random(0)
    late = [Sample(40 + index, 0, 1, 0.5) for index in range(8)]
    _, alone = speeds([measured("one", rounds(1e-2, (), generator)), measured("late", late)])
    assert alone.ratio is None
    assert alone.seconds_per_step == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("changes", "refused", "short", "reason"),
    [
        ({}, "20 of 40 rounds were noisy", "TOO NOISY", "20 of 40 rounds were noisy"),
        ({"new_input_seconds": 5.0, "new_input_pairs": ((5.0, 0.01),) * 20}, None, "WORK_VANISHED", "WORK_VANISHED: "),
        ({"steady": False}, None, "NO_STEADY_STATE", "NO_STEADY_STATE: in 6 of 6 process runs"),
        ({"verdict": Verdict.DIFFERENT}, None, "DIFFERENT", "it does not compute the same"),
        ({"verdict": None}, None, "outputs not compared", "its outputs were not compared"),
        ({"unfinished": (1.0, 1.0)}, None, "its wait does not wait", "1 s of computation were left"),
        ({"ended": "it ended in process run 2: killed"}, None, "ended early", "it ended in process run 2"),
    ],
)
def test_a_refused_speed_is_not_counted_and_says_why(changes, refused, short, reason):
    generator = random.Random(1)
    one, two = speeds(
        [
            measured("one", rounds(1e-2, (), generator, 6)),
            measured("two", rounds(1e-2, (), generator, 6), **changes),
        ],
        refused,
    )
    assert (two.verdict, two.counted, two.not_counted) == ("REFUSED", False, short)
    assert two.reason.startswith(reason)
    assert one.counted is (refused is None)


def test_process_runs_that_differ_too_much_are_not_counted():
    generator = random.Random(2)
    scattered = [Sample(index, 0, 1, 1e-2 * (1 + 0.3 * launch), launch) for launch in range(6) for index in range(8)]
    even = [Sample(index, 0, 1, 1e-2 * generator.gauss(1, 0.001), launch) for launch in range(6) for index in range(8)]
    one, two = speeds([measured("one", even), measured("two", scattered)])
    assert (one.counted, two.counted, two.not_counted) == (True, False, "process runs differ")
    assert two.noisy
