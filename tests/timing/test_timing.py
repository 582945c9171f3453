import math
import random
from dataclasses import replace

import pytest

from xverify.results.records import Sample
from xverify.timing import plan as planning
from xverify.timing import statistics as timing


def samples(values):
    return [Sample(index, 0, 1, value) for index, value in enumerate(values)]


def test_rerun_gives_exactly_this_number_of_calls():
    for rerun in (1, 3, 4, 7, 100, 1000, 12345):
        plan = planning.plan({"fast": 1e-5, "slow": 0.7}, cases=4, rerun=rerun)
        assert set(plan.calls) == {"fast", "slow"}
        assert all(sum(calls) == rerun for calls in plan.calls.values())
        assert all(len(calls) == plan.rounds and min(calls) >= 1 for calls in plan.calls.values())


def test_rounds_are_shorter_when_a_limit_ends_them_early():
    calls = {"fast": 1e-4, "slow": 0.2}
    whole = planning.plan(calls, cases=4, rerun=1000)
    assert planning.plan(calls, cases=4, rerun=1000, limit=1e4) == whole
    for limit, longest in ((20.0, 1.0), (1.0, 0.2), (0.0, 0.2)):
        plan = planning.plan(calls, cases=4, rerun=1000, limit=limit)
        assert sum(plan.calls["slow"]) == 1000
        assert max(plan.calls["slow"]) * 0.2 <= longest + 1e-9


def test_blocks_last_long_enough_and_use_every_case():
    plan = planning.plan({"fast": 1e-5, "slow": 0.7}, cases=4, rerun=None)
    assert plan.rounds >= max(4, planning.MIN_ROUNDS)
    assert plan.calls["fast"][0] * 1e-5 >= planning.BLOCK_SECONDS
    assert plan.calls["slow"] == [1, 1, 1, 1, 2, 2, 2, 2], "blocks of n and of 2n calls, on every case each"


def test_orders_are_counterbalanced():
    orders = planning.orders(["a", "b", "c"], rounds=10, seed=0)
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert all(orders[i] == orders[i - 1][::-1] for i in range(1, 10, 2))
    assert len({tuple(order) for order in orders}) > 2


def test_seconds_per_call_is_the_median_over_rounds_and_the_mean_over_process_runs():
    blocks = [Sample(0, 0, 3, 3.3), Sample(1, 0, 1, 0.9), Sample(2, 0, 2, 8.0)]
    found = timing.seconds_per_call(blocks)
    assert found.mean == pytest.approx(1.1)
    assert found.low < found.mean < found.high
    both = timing.seconds_per_call([*blocks, *(Sample(index, 0, 1, 4.4, 1) for index in range(3))])
    assert both.mean == pytest.approx(2.2), "the geometric mean, as of ratios"
    assert timing.process_run_seconds(blocks) == pytest.approx([1.1])


def test_one_block_has_no_interval():
    found = timing.seconds_per_call(samples([0.5]))
    assert found.mean == 0.5
    assert math.isinf(found.high)


def test_the_interval_covers_the_true_mean_in_95_percent():
    generator = random.Random(0)
    hits = 0
    for _ in range(2000):
        found = timing.interval([generator.gauss(1.0, 0.1) for _ in range(10)])
        hits += found.low <= 1.0 <= found.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_a_drift_of_the_machine_does_not_change_the_ratio():
    drift = [1.0 + 0.2 * index for index in range(12)]
    found = timing.ratio(samples([1.05 * value for value in drift]), samples(drift))
    assert found is not None
    assert found.mean == pytest.approx(1.05)
    assert found.low == pytest.approx(1.05)
    assert found.high == pytest.approx(1.05)


def test_a_ratio_needs_common_rounds():
    assert timing.ratio(samples([1.0, 2.0]), []) is None
    late = [Sample(7, 0, 1, 1.0)]
    assert timing.ratio(samples([1.0, 2.0]), late) is None


def test_unfinished_work_differs_from_the_noise_of_a_first_reading():
    assert timing.unfinished([0.010, 0.011, 0.012], seconds=0.001)
    assert not timing.unfinished([0.010, 0.0, 0.012], seconds=0.001)
    assert not timing.unfinished([20e-6] * 4, seconds=10e-6)
    assert not timing.unfinished([210e-6] * 4, seconds=46e-6)
    assert timing.unfinished([600e-6] * 4, seconds=46e-6)
    assert not timing.unfinished([], seconds=1.0)


# -- process runs, verdicts -------------------------------------------------------------------------------------------


def samples_of_process_runs(logs, rounds=5):
    """Samples of a subject and of its baseline with this log-ratio in each process run."""
    mine = [Sample(index, 0, 1, math.exp(log), launch) for launch, log in enumerate(logs) for index in range(rounds)]
    return mine, [Sample(index, 0, 1, 1.0, launch) for launch in range(len(logs)) for index in range(rounds)]


def test_an_interval_counts_process_runs():
    logs = [0.01, 0.02, 0.03]
    found = timing.ratio(*samples_of_process_runs(logs))
    expected = timing.interval(logs)
    assert math.log(found.mean) == pytest.approx(expected.mean)
    assert math.log(found.low) == pytest.approx(expected.low)
    assert timing.ratio(*samples_of_process_runs(logs, rounds=50)).low == pytest.approx(found.low), (
        "more rounds do not narrow the interval"
    )


def test_noisy_rounds_do_not_count_when_there_are_quiet_rounds():
    quiet, noisy = Sample(0, 0, 1, 1.0), Sample(1, 0, 1, 9.0, dropped="steal")
    assert timing.clean([quiet, noisy]) == [quiet]
    assert timing.clean([noisy]) == [noisy]


@pytest.mark.parametrize(
    ("percent", "verdict"),
    [(5, "SLOWER"), (-5, "FASTER"), (0, "SAME"), (2.0, "AMBIGUOUS"), (-2.0, "AMBIGUOUS")],
)
def test_a_verdict_states_where_the_whole_interval_lies(percent, verdict):
    generator = random.Random(1)
    center = math.log1p(percent / 100)
    estimate = timing.estimate([center + generator.gauss(0, 0.003) for _ in range(8)])
    assert timing.verdicts({"a": estimate})["a"][0] == verdict


def test_an_interval_that_is_too_wide_is_refused():
    verdict, reason = timing.verdicts({"a": timing.Estimate(0.5, 0.1, 5)})["a"]
    assert verdict == "REFUSED"
    assert reason == "process runs differ too much: the interval of the ratio is ±29%, the limit is ±10%"


def test_a_single_claim_holds_when_its_interval_lies_in_its_range():
    generator = random.Random(2)
    for _ in range(500):
        found = timing.Estimate(generator.gauss(0, 0.03), 0.005, 7)
        low, high = found.mean - found.half, found.mean + found.half
        outside = "SLOWER" if low > timing.SAME else "FASTER" if high < -timing.SAME else "AMBIGUOUS"
        expected = "SAME" if low > -timing.SAME and high < timing.SAME else outside
        assert timing.verdicts({"a": found})["a"][0] == expected


def test_several_claims_need_stronger_evidence():
    limit = timing.Estimate(0.0, 1.0, 7).half  # in standard errors
    edge = timing.Estimate(timing.SAME + 1.01 * limit * 0.005, 0.005, 7)
    assert timing.verdicts({"a": edge})["a"] == ("SLOWER", None)
    verdict, reason = timing.verdicts({"a": edge, "b": edge})["a"]
    assert verdict == "AMBIGUOUS"
    assert reason == "it would be SLOWER if it were compared alone, but not among 2 comparisons"
    sure = timing.Estimate(0.5, 0.001, 7)
    assert timing.verdicts({"a": edge, "b": sure})["a"][0] == "SLOWER", "a certain claim does not weaken the others"


def test_the_width_of_the_interval_decides_on_further_process_runs():
    effort = planning.EFFORTS["standard"]
    narrow, wide = [0.30, 0.301, 0.302, 0.3, 0.301, 0.3], [0.5, 0.1, 0.5, 0.1, 0.5, 0.1]
    assert not timing.enough([narrow[:5]], effort), "at least six"
    assert timing.enough([narrow], effort)
    assert timing.enough([[0.0, 0.001] * 3], effort)
    assert not timing.enough([wide], effort)
    assert not timing.enough([narrow, wide], effort), "the widest decides"
    assert timing.enough([wide * 2], effort), "at most twelve"


def test_the_interval_covers_the_true_mean_when_its_width_decides():
    generator = random.Random(3)
    effort = planning.EFFORTS["standard"]
    hits = 0
    for _ in range(3000):
        logs = []
        while not timing.enough([logs], effort):
            logs.append(generator.gauss(0.0, 0.025))
        found = timing.interval(logs)
        hits += found.low <= 0.0 <= found.high
    assert 0.93 <= hits / 3000 <= 0.97


def test_the_interval_of_a_change_between_two_runs_covers_the_true_change():
    generator = random.Random(4)
    hits = 0
    for _ in range(1000):
        old = [generator.gauss(0.0, 0.01) for _ in range(6)]
        new = [generator.gauss(0.05, 0.03) for _ in range(8)]
        found = timing.change(old, new)
        hits += abs(found.mean - 0.05) <= found.half
    assert 0.93 <= hits / 1000 <= 0.97


def test_warm_up_ends_when_two_windows_agree_case_by_case():
    assert planning.window(4) == 4
    assert planning.window(1) == 4
    assert planning.window(3) == 6
    cases = [1.0, 2.0, 3.0, 4.0]  # the cases take different times: only equal cases are compared
    assert not planning.steady(cases, 4), "one window alone cannot be compared"
    assert planning.steady(cases * 2, 4)
    assert not planning.steady(cases + [value * 0.9 for value in cases], 4)
    assert not planning.steady(cases + [value * 0.97 for value in cases], 4), "every block is faster: a trend"
    assert planning.steady(cases + [value * 0.995 for value in cases], 4)
    assert planning.steady([*cases, 1.02, 1.98, 3.01, 3.9], 4)


def samples_of_two_block_sizes(small, large, generator):
    return [
        Sample(index, index % 4, calls, seconds * generator.gauss(1.0, 0.02))
        for index in range(8)
        for calls, seconds in [(10, small) if index // 4 % 2 == 0 else (20, large)]
    ]


def test_vanished_work_is_detected_in_blocks_of_twice_the_calls():
    generator = random.Random(5)
    assert timing.vanished(samples_of_two_block_sizes(1.0, 2.0, generator=generator)) is None
    assert timing.vanished(samples_of_two_block_sizes(1.0, 1.0, generator=generator)).ratio == pytest.approx(
        1.0, rel=0.05
    )
    assert timing.vanished(samples_of_two_block_sizes(1.0, 1.7, generator=generator)).ratio == pytest.approx(
        1.7, rel=0.05
    )
    assert timing.vanished(samples([1.0] * 8)) is None, "blocks of one size allow no comparison"


def test_noisy_rounds_are_no_evidence_of_vanished_work():
    stalled = samples_of_two_block_sizes(1.0, 1.1, generator=random.Random(5))
    assert timing.vanished([replace(sample, dropped="another process used a core") for sample in stalled]) is None


@pytest.mark.parametrize(
    ("call", "fixed"), [(0.4, 0.06), (0.4, 0.7), (0.02, 0.03), (4e-3, 7e-3), (20e-6, 200e-6), (1e-6, 100e-6)]
)
def test_a_fixed_time_of_a_block_is_no_vanished_work(call, fixed):
    """Blocks of honest calls, of which each block takes some time whatever its calls."""
    generator, calls = random.Random(3), planning.calls_a_block(call)
    blocks = [
        Sample(index, index % 4, size, (fixed + size * call) * generator.gauss(1.0, 0.003), launch)
        for launch in range(3)
        for index, size in enumerate([calls] * 4 + [2 * calls] * 4)
    ]
    assert timing.vanished(blocks) is None


@pytest.mark.parametrize("work", [0.4, 4e-3, 0.02])
def test_calls_that_only_one_call_of_a_block_computes_are_vanished_work(work):
    """A block computes one call; the others return at once."""
    generator, calls = random.Random(3), planning.calls_a_block(work)
    blocks = [
        Sample(index, index % 4, size, (work + size * 1e-6) * generator.gauss(1.0, 0.003))
        for index, size in enumerate([calls] * 4 + [2 * calls] * 4)
    ]
    found = timing.vanished(blocks)
    assert found is not None
    assert found.fixed == pytest.approx(work, rel=0.02)


def test_results_are_remembered_only_when_nearly_every_quiet_pair_shows_it():
    assert timing.remembered([(4e-3, 1e-6)] * 20, seconds=1e-6) == (4e-3, 1e-6)
    assert timing.remembered([(4e-3, 1e-6)] * 19 + [(4e-3, 4e-3)], seconds=1e-6), "one repetition was interrupted"
    assert timing.remembered([(4e-3, 1e-6)] * 3 + [(5e-5, 4e-5)] * 17, seconds=1e-6) is None, "three were interrupted"
    assert timing.remembered([(4e-3, 1e-6)] * 2, seconds=1e-6) is None, "too few"
    assert timing.remembered([(0.061, 0.06)] * 20, seconds=1e-3) is None, "every block takes 60 ms, whatever its calls"


def test_a_much_longer_call_on_a_new_input_is_detected():
    assert timing.amortised(alone=2e-3, seconds=60e-9)
    assert not timing.amortised(alone=120e-6, seconds=20e-6), "sleeping threads need time to wake up"
    assert not timing.amortised(alone=0.21, seconds=0.2)


def test_a_99th_percentile_needs_a_thousand_calls():
    single = [Sample(index, 0, 1, 1.0 + (index >= 990)) for index in range(1000)]
    assert timing.tail(single) == pytest.approx(2.0, abs=0.05)
    assert timing.tail(single[:-1]) is None
    assert timing.tail([Sample(index, 0, 2, 1.0) for index in range(2000)]) is None
