import itertools
import os
import re
import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from xverify.timing import noise
from xverify.timing.noise import Gate, Moment, Seen, look, used

linux = pytest.mark.skipif(bool(noise.missing()), reason="this system does not provide the counters")


def moments(wall, delay=0.0, others=0.0, steal=0.0, ran=None):
    """The counters before and after a block of a process with one thread."""
    ran = wall - delay if ran is None else ran
    before = Moment(100.0, {"1": (5.0, 1.0)}, 50.0, 3.0, 0.5)
    after = Moment(100.0 + wall, {"1": (5.0 + ran, 1.0 + delay)}, 50.0 + ran + others, 3.0 + steal, 0.5)
    return before, after


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        ({}, None),
        ({"delay": 0.2}, None),  # it has more threads than cores, which belongs to its speed
        ({"others": 0.9}, None),  # another process beside an idle core
        ({"delay": 0.2, "others": 0.9}, "other processes"),
        ({"delay": 0.02, "others": 0.9}, None),
        ({"steal": 0.1}, "steal"),
        ({"delay": 0.2, "steal": 0.1}, "steal"),
    ],
)
def test_a_block_is_noisy_when_other_processes_made_it_wait(seen, reason):
    assert Gate().block(*moments(1.0, **seen)) == reason


def test_a_few_ticks_in_a_short_block_do_not_make_it_noisy():
    gate = Gate()
    assert gate.block(*moments(0.06, delay=0.01, others=0.03)) is None
    assert gate.block(*moments(0.06, delay=0.01, others=0.03)) == "other processes", (
        "the ticks of two blocks are enough"
    )


def test_a_canary_that_takes_longer_flags_the_round(monkeypatch):
    gate, clock = Gate(), itertools.count()
    monkeypatch.setattr(noise.time, "perf_counter", lambda: float(next(clock)))  # every canary takes a second
    assert [gate.canary() for _ in range(3)] == [None, None, None], "three values are too few for a median"
    assert gate.canaries == [1.0, 1.0, 1.0]
    gate.canaries = [1.0] * 9
    assert gate.canary() is None
    gate.canaries = [0.9] * 9
    assert gate.canary() == "the machine's speed"
    assert gate.most["canary"] == pytest.approx(1 / 9)


def test_a_machine_with_more_than_30_percent_noisy_rounds_is_refused():
    seen, gate = Seen(), Gate()
    gate.canary()
    for index in range(10):
        gate.round({"steal"} if index < 3 else set())
    seen.add(gate)
    assert seen.refusal() is None
    gate = Gate()
    gate.canary()
    gate.round({"steal", "other processes"})
    seen.add(gate)
    assert seen.refusal().startswith("4 of 11 rounds were noisy (steal in 4, other processes in 1), the limit is 30%")
    again = Seen()
    again.restore(seen.describe())
    assert again.describe() == seen.describe()


@linux
@pytest.mark.timed
def test_the_process_that_uses_the_core_is_named(monkeypatch):
    process = subprocess.Popen(
        ["bash", "-c", f"exec {sys.executable} -c 'while True: pass' &>/dev/null & echo $!; disown"],
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(process.stdout.readline())
    process.wait()
    try:
        others = [
            psutil.Process(pid),
            psutil.Process(),
        ]  # other processes on this machine are hidden, because they may use more
        monkeypatch.setattr(psutil, "process_iter", lambda: iter(others))
        gate = Gate()
        time.sleep(1.0)
        said = gate.culprit()
    finally:
        os.kill(pid, 9)
    assert said is not None
    assert re.fullmatch(r"other processes took \d\.\d of \d+ cores, most of it python\S*( \(load [\d.]+\))?", said)


@linux
@pytest.mark.timed
def test_this_process_is_never_reported_as_the_culprit(monkeypatch):
    monkeypatch.setattr(psutil, "process_iter", lambda: iter([psutil.Process()]))  # no other process can be named
    gate = Gate()
    before = look(os.getpid())
    end = time.monotonic() + 0.3
    while time.monotonic() < end:
        pass
    after = look(os.getpid())
    assert after.at - before.at >= 0.3
    ran = sum(run for run, _ in after.tasks.values()) - sum(run for run, _ in before.tasks.values())
    assert 0.05 < ran < 0.5
    assert gate.culprit() is None
    monkeypatch.setattr(noise, "os", SimpleNamespace(getpid=lambda: 0, getloadavg=os.getloadavg))
    assert gate.culprit() is not None, "another process with this use of a core is named"


@linux
@pytest.mark.timed
def test_the_work_of_every_process_that_is_timed_is_its_own():
    ranks = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    pids = [each.pid for each in ranks]
    try:
        time.sleep(0.2)
        together, first = look(*pids), look(pids[0])
        time.sleep(0.5)
        together, first = (used(together, look(*pids)), used(first, look(pids[0])))
    finally:
        for each in ranks:
            each.kill()
            each.wait()
    assert first[2] - together[2] > 0.1, "what rank 1 computes is no disturbance of rank 0"
