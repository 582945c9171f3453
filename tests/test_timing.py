import math
import random

import pytest

from xverify import timing
from xverify.records import Sample


def samples(values, calls=1):
    return [Sample(index, 0, calls, value * calls) for index, value in enumerate(values)]


def test_rerun_is_honoured_to_the_call():
    for rerun in (1, 3, 4, 7, 100, 1000, 12345):
        plan = timing.plan({"fast": 1e-5, "slow": 0.7}, cases=4, rerun=rerun)
        assert all(sum(calls) == rerun for calls in plan.calls.values())
        assert all(len(calls) == plan.rounds and min(calls) >= 1 for calls in plan.calls.values())


def test_blocks_last_long_enough_and_every_case_is_met():
    plan = timing.plan({"fast": 1e-5, "slow": 0.7}, cases=4, rerun=None)
    assert plan.rounds >= max(4, timing.MIN_ROUNDS)
    assert plan.calls["fast"][0] * 1e-5 >= timing.BLOCK_SECONDS
    assert plan.calls["slow"] == [1, 1, 1, 1, 2, 2, 2, 2], "blocks of n and of 2n calls, on every case each"


def test_orders_are_counterbalanced():
    orders = timing.orders(["a", "b", "c"], rounds=10, seed=0)
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)
    assert all(orders[i] == orders[i - 1][::-1] for i in range(1, 10, 2))
    assert len({tuple(order) for order in orders}) > 2


def test_seconds_per_call_is_all_seconds_over_all_calls():
    blocks = [Sample(0, 0, 3, 3.3), Sample(1, 0, 1, 0.9)]
    found = timing.seconds_per_call(blocks)
    assert found.mean == pytest.approx(4.2 / 4)
    assert found.low < found.mean < found.high


def test_one_block_has_no_interval():
    found = timing.seconds_per_call(samples([0.5]))
    assert found.mean == 0.5
    assert math.isinf(found.high)


def test_the_interval_covers_the_truth_as_often_as_it_says():
    generator = random.Random(0)
    hits = 0
    for _ in range(2000):
        found = timing.interval([generator.gauss(1.0, 0.1) for _ in range(10)])
        hits += found.low <= 1.0 <= found.high
    assert 0.93 <= hits / 2000 <= 0.97


def test_a_drift_of_the_machine_leaves_the_ratio_alone():
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


def test_unfinished_work_is_told_from_the_noise_of_a_first_reading():
    assert timing.unfinished([0.010, 0.011, 0.012], seconds=0.001)
    assert not timing.unfinished([0.010, 0.0, 0.012], seconds=0.001)
    assert not timing.unfinished([20e-6] * 4, seconds=10e-6)
    assert not timing.unfinished([], seconds=1.0)
