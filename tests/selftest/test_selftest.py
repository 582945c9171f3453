"""The selftest of timing: its checks detect the faults that they look for, and one part is run by the command line."""

import contextlib
import importlib.util
import json
import math
import random
from types import SimpleNamespace

import pytest

from xverify.results.records import Sample
from xverify.selftest import alternation, overhead, simulation, timing
from xverify.selftest.alternation import Pair
from xverify.timing import statistics


def run_of(ratios, verdict="SAME", reason=None, seed=0, launches=6, growth=2.0):
    """The result of a run in which each row takes this multiple of the first row's time."""
    generator = random.Random(seed)
    rows = []
    for index, ratio in enumerate([1.0, *ratios]):
        samples = tuple(
            Sample(
                round_,
                0,
                calls,
                1e-3 * ratio * effect * generator.gauss(1, 0.003) * (calls / 10 if calls == 10 else growth),
                launch,
            )
            for launch in range(launches)
            for effect in [math.exp(generator.gauss(0, 0.003))]
            for round_, calls in enumerate([10, 20] * 8)
        )
        first = rows[0].speed.samples if rows else samples
        found = statistics.ratio(samples, first)
        speed = SimpleNamespace(
            samples=samples, verdict=verdict if index else "BASELINE", reason=reason, ratio=found.mean,
            ratio_ci=(found.low, found.high), launches=range(launches),
        )  # fmt: skip
        rows.append(SimpleNamespace(subject=("work", "spinning", "sleeping")[index], status="ok", speed=speed))
    return SimpleNamespace(rows=rows)


def found(monkeypatch, kind, runs, make):
    made = iter(range(runs))
    monkeypatch.setattr(timing, "time_adapters", lambda *subjects, **settings: make(next(made)))
    return {check.name: check for check in timing.KINDS[kind](runs, lambda text: None)}


def test_equal_adapters_pass(monkeypatch):
    checks = found(monkeypatch, "equals", 12, lambda seed: run_of([1.0], seed=seed))
    assert [check.passed for check in checks.values()] == [True] * 5, checks


def test_intervals_that_miss_the_true_ratio_fail(monkeypatch):
    checks = found(monkeypatch, "equals", 12, lambda seed: run_of([1.03], seed=seed))
    assert checks["A/A, real processes: the interval covers 1"].passed is False


def recorded(draw, count=60, rounds=16):
    """The log-ratios of the rounds of process runs. draw: returns the log-ratio of one process run."""
    generator = random.Random(1)
    return [[effect + generator.gauss(0, 1e-3) for _ in range(rounds)] for effect in (draw() for _ in range(count))]


def long_tails(generator, scale):
    """A process run is disturbed once in eight."""
    return lambda: generator.gauss(0, scale * (6 if generator.random() < 0.12 else 1))


@pytest.mark.parametrize("scale", [0.003, 0.01, 0.03])
@pytest.mark.parametrize("tails", ["normal", "long"])
def test_the_intervals_of_the_harness_pass_whatever_the_machine(monkeypatch, scale, tails):
    monkeypatch.setattr(simulation, "SIMULATED", 1500)
    generator = random.Random(7)
    draw = long_tails(generator, scale) if tails == "long" else lambda: generator.gauss(0, scale)
    checks = list(simulation.simulated_checks(recorded(draw)))
    assert [check.passed for check in checks] == [True, True], checks


@pytest.mark.parametrize(("factor", "passed"), [(0.75, [False, True]), (1.4, [True, False])])
def test_intervals_that_are_too_narrow_or_too_wide_fail(monkeypatch, factor, passed):
    monkeypatch.setattr(simulation, "SIMULATED", 1500)
    student = statistics.student
    monkeypatch.setattr(statistics, "student", lambda freedom: factor * student(freedom))
    generator = random.Random(7)
    checks = list(simulation.simulated_checks(recorded(lambda: generator.gauss(0, 0.004))))
    assert [check.passed for check in checks] == passed, checks


@pytest.mark.parametrize(
    ("ratios", "passed"),
    [
        ([1.001, 0.998, 1.002, 1.0, 0.999, 1.001], True),
        ([1.03, 1.031, 1.029, 1.03, 1.032, 1.028], False),
        ([0.97, 0.971, 0.969, 0.97, 0.972, 0.968], False),
        ([1.1, 0.9, 1.2, 0.8, 1.15, 0.95], None),
    ],
)
def test_the_harness_is_compared_with_a_script_in_alternation(monkeypatch, ratios, passed):
    left = [*ratios, *ratios]
    monkeypatch.setattr(alternation, "_pair", lambda policy, cores: Pair(left.pop(0), (2.0, 1.0)))
    check = alternation.compare_with_script("keep", ())
    assert check.passed is passed, check
    assert len(left) == (6 if passed else 0)
    assert "page faults a call 2, the script 1" in check.found


def test_a_false_verdict_fails(monkeypatch):
    checks = found(monkeypatch, "equals", 12, lambda seed: run_of([1.0], "SLOWER" if seed == 3 else "SAME", seed=seed))
    assert checks["A/A, real processes: false FASTER or SLOWER"].passed is False


def test_calls_that_do_no_work_fail_the_check_of_doubled_blocks(monkeypatch):
    checks = found(monkeypatch, "equals", 4, lambda seed: run_of([1.0], seed=seed, growth=1.2))
    assert checks["time(2n) / time(n)"].passed is False


def test_refused_runs_are_counted_and_leave_the_check_undecided(monkeypatch):
    checks = found(monkeypatch, "equals", 3, lambda seed: run_of([1.0], "REFUSED", "noise", seed=seed, launches=2))
    check = checks["A/A, real processes: the interval covers 1"]
    assert check.passed is None
    assert "3 of 3 runs refused" in check.found


@pytest.mark.parametrize(
    ("ratio", "verdict", "passed"), [(1.05, "SLOWER", True), (1.05, "AMBIGUOUS", False), (1.0, "SAME", False)]
)
def test_a_planted_slowdown_must_be_detected(monkeypatch, ratio, verdict, passed):
    checks = found(monkeypatch, "slower", 5, lambda seed: run_of([ratio, ratio], verdict, seed=seed))
    assert [check.passed for check in checks.values()] == [passed] * 2


def test_a_cheat_that_is_not_refused_fails(monkeypatch):
    checks = found(monkeypatch, "cheats", 3, lambda seed: run_of([1.0], seed=seed))
    assert [check.passed for check in checks.values()] == [False] * 3


def compare(monkeypatch, *ours, hand=1.0):
    """The check of an overhead.

    ours: seconds per call of the harness, in each process.
    hand: seconds per call of the loop by hand.
    """
    replies = iter(ours)

    def run(*arguments, **settings):
        pairs = {"ours": [next(replies)] * 9, "by_hand": [hand] * 9}
        return SimpleNamespace(returncode=0, stdout=json.dumps(pairs), stderr="")

    monkeypatch.setattr(overhead.subprocess, "run", run)
    check = overhead.compare_with_loop("torch", "mlp", "forward", ())
    assert next(replies, None) is None
    return check


@pytest.mark.parametrize(
    ("ours", "passed"),
    [
        ([1.001, 1.03, 0.999], True),
        ([1.02, 1.02, 1.001, 1.001, 1.001, 1.0], True),  # not accepted at first, so measured again
        ([1.02, 1.03, 1.01] * 4, False),
        ([0.98] * 12, False),
        ([1.02] * 11 + [1.001], None),
        ([1.02] * 11 + [0.98], None),
    ],
)
def test_overhead_is_judged_over_processes(monkeypatch, ours, passed):
    check = compare(monkeypatch, *ours)
    assert check.passed is passed
    assert ("by process" in check.found) is (passed is not True)


def test_an_overhead_of_few_microseconds_is_accepted(monkeypatch):
    assert compare(monkeypatch, *[11e-6] * 3, hand=10e-6).passed is True


@pytest.mark.timed
def test_a_loop_by_hand_uses_the_cores_that_a_busy_process_leaves(monkeypatch):
    with timing.busy(True):
        seen = []
        monkeypatch.setattr(overhead, "PROCESSES", 1)
        done = SimpleNamespace(returncode=0, stdout=json.dumps({"ours": [1.0], "by_hand": [1.0]}), stderr="")
        monkeypatch.setattr(overhead.subprocess, "run", lambda command, **settings: seen.append(command) or done)
        list(timing.overhead(1, lambda text: None))
        assert seen
        assert {command[-1] for command in seen} == {",".join(map(str, timing.CORES))}


@pytest.mark.slow
@pytest.mark.timed
def test_the_command_line_catches_all_cheats(xverify, tmp_path):
    done = xverify("selftest", "timing", "--only", "cheats", "--json", tmp_path / "table.json")
    assert done.code == 0, done.out
    assert done.out.count("caught") == 6
    assert [check["passed"] for check in json.loads((tmp_path / "table.json").read_text())] == [True] * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "task"), [("torch", "forward"), ("torch", "recipe"), ("torch", "own"), ("jittor", "own")]
)
@pytest.mark.timed
def test_a_loop_by_hand_runs_beside_the_harness(monkeypatch, name, task):
    if importlib.util.find_spec(name) is None:  # jittor itself is not imported here
        pytest.skip(f"{name} is not installed")
    monkeypatch.setattr(overhead, "PROCESSES", 1)
    monkeypatch.setattr(overhead, "MOST_PROCESSES", 1)
    check = overhead.compare_with_loop(name, "mlp", task, ())
    assert check.passed is not None, check
    assert check.found.startswith("ratio ")


def test_unknown_checks(xverify):
    done = xverify("selftest", "timing", "--only", "cheat")
    assert done.code == 2
    assert "cheats" in done.err


@pytest.mark.parametrize(("factor", "passed"), [(0.4, True), (0.99, True), (1.01, False)])
def test_bounds_above_the_speed_alone_fail(monkeypatch, factor, passed):
    def time_adapters(subject, **settings):
        alone = timing.BATCH / timing.PACE
        busy = settings["rerun"] == 40
        speed = SimpleNamespace(fps=alone, counted=not busy, at_least=factor * alone if busy else None)
        return SimpleNamespace(rows=[SimpleNamespace(speed=speed)])

    monkeypatch.setattr(timing, "time_adapters", time_adapters)
    monkeypatch.setattr(timing, "_occupied", lambda cores: contextlib.nullcontext())
    checks = list(timing.KINDS["bounds"](20, lambda text: None))
    assert [check.passed for check in checks] == [passed, passed]
    assert all(check.found.startswith(f"holds in {20 * passed} of 20, {factor:.2f} of the speed") for check in checks)
