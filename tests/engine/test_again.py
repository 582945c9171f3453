"""Calls that seem not to do their work are measured again, and lose their speed only when it is seen twice."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest
from conftest import PLANTED, write_folder

from xverify.engine import again as again_module
from xverify.engine.again import measure_again
from xverify.messages import Block, Timed, Warm, Warmed
from xverify.results.records import ProcessRun, Sample
from xverify.results.verdicts import Verdict
from xverify.timing.noise import Moment
from xverify.timing.speed import Measurements, fault


class Fake:
    """A worker that answers from memory.

    call, fixed: seconds of a call and of a block. remembers: whether it computes an input only when the call before had another.
    cold: seconds that a reading of outputs takes longer after a call. late: seconds of computation left after its wait.
    """

    folder = Path()
    pids = (os.getpid(),)

    def __init__(
        self, call: float, fixed: float = 0.0, remembers: bool = False, cold: float = 0.0, late: float = 0.0
    ) -> None:
        self.call, self.fixed, self.remembers, self.last = call, fixed, remembers, -1
        self.cold, self.late = cold, late

    def ask(self, request):
        if not isinstance(request, Block):
            return Warmed(request.calls, 1.0, 0.1) if isinstance(request, Warm) else None
        calls = min(request.calls, request.case != self.last) if self.remembers else request.calls
        self.last = request.case if request.calls else self.last
        late = self.cold if request.keep and not request.calls_between else self.late
        return Timed(self.fixed + calls * self.call + request.calls * 1e-7, late)


@pytest.fixture
def quiet(monkeypatch):
    """Let every look find that nothing else ran, 60 ms after the look before."""
    clock = itertools.count()
    monkeypatch.setattr(again_module, "look", lambda pid: Moment(0.06 * next(clock), {}, 0.0, 0.0, 0.0))


def measured(short: float, long: float, calls: int, **more) -> Measurements:
    """Measurements with blocks of so many calls, and of twice as many."""
    samples = tuple(
        Sample(index, index % 4, size, seconds)
        for index, (size, seconds) in enumerate([(calls, short)] * 4 + [(2 * calls, long)] * 4)
    )
    return Measurements("fake", 1, 4, samples, verdict=Verdict.EQUAL, **more)


def judged(found: Measurements, worker: Fake) -> str | None:
    """Why this candidate's speed is refused, after what is suspicious was measured again."""
    again = measure_again(worker, found, 0)
    run = ProcessRun(0, 0.0, 0.0, 0.0, 0.0, 0, 0.0, repeated_blocks=again.blocks)
    more = {"new_input_pairs": again.pairs, "unfinished": (*found.unfinished, *again.unfinished)}
    refused = fault(Measurements(**{**vars(found), **more, "process_runs": (run,)}))
    return refused.reason if refused else None


def test_growth_that_is_not_seen_again_is_no_fault(quiet):
    suspicious = measured(0.06, 0.062, 10)
    assert judged(suspicious, Fake(call=6e-3)) is None
    found = judged(suspicious, Fake(call=0.06, remembers=True))
    assert "WORK_VANISHED: 2n calls take 1.03 times as long as n calls, and 1.00 times when timed again" in found
    assert "A block of 10 calls takes 0.06 s whatever its calls" in found


def test_what_a_block_without_calls_takes_is_not_work_of_its_calls(quiet):
    assert judged(measured(0.12, 0.18, 60), Fake(call=1e-3, fixed=0.06)) is None
    assert "WORK_VANISHED" in judged(measured(0.12, 0.121, 60), Fake(call=0.06, fixed=0.06, remembers=True))


def test_a_long_call_on_a_new_input_must_be_seen_again(quiet):
    suspicious = measured(0.06, 0.12, 60, new_input_seconds=0.02)
    assert judged(suspicious, Fake(call=1e-3)) is None, "the single calls had been interrupted"
    assert judged(suspicious, Fake(call=1e-3, fixed=0.02)) is None, "every block takes 20 ms more"
    found = judged(suspicious, Fake(call=0.02, remembers=True))
    assert (
        "a call on a new input takes 0.02 s, and 0.001 s in a block on one input. Seen again: 0.02 s on a new" in found
    )


def test_outputs_that_a_disturbed_machine_was_slow_to_give_are_read_again(quiet):
    suspicious = measured(0.06, 0.12, 60, unfinished=(0.002, 0.003, 0.002, 0.004))
    assert "does not wait" in fault(suspicious).reason
    assert judged(suspicious, Fake(call=1e-3)) is None
    assert "does not wait" in judged(suspicious, Fake(call=1e-3, late=0.002))


def test_a_reading_that_is_slow_after_every_call_is_no_unfinished_computation(quiet):
    """Seen on a busy machine: 0.1 ms more for the first reading, in every block."""
    suspicious = measured(600e-6, 1200e-6, 10, unfinished=(120e-6, 140e-6, 110e-6, 160e-6))
    assert judged(suspicious, Fake(call=60e-6, cold=120e-6)) is None


@pytest.mark.timed
@pytest.mark.parametrize("subject", ["synchronises", "synchronises_long"])
def test_a_fixed_time_of_every_block_is_not_held_against_a_subject(no_noise, xverify, tmp_path, subject):
    folder = write_folder(tmp_path / "port", (subject,))
    done = xverify("run", folder, "--subjects", subject)
    assert done.row(subject)["speed"]["verdict"] == "BASELINE", done.row(subject)["speed"]["reason"]


@pytest.mark.timed
def test_a_subject_that_remembers_results_is_still_refused(no_noise, xverify, tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy",))
    done = xverify("run", folder, "--subjects", "remembering", frameworks=PLANTED)
    speed = done.row("remembering")["speed"]
    assert speed["verdict"] == "REFUSED"
    assert "WORK_VANISHED" in speed["reason"]


def test_pairs_that_other_processes_disturbed_prove_nothing(monkeypatch):
    """Every call waits for a core most of the time, which another process uses."""
    clock = itertools.count()

    def look(pid):
        at = 0.06 * next(clock)
        return Moment(at, {"1": (0.2 * at, 0.5 * at)}, 1.5 * at, 0.0, 0.0)

    monkeypatch.setattr(again_module, "look", look)
    monkeypatch.setattr(again_module, "MOST_SECONDS", 0.0)
    suspicious = measured(0.06, 0.12, 60, new_input_seconds=0.02)
    assert judged(suspicious, Fake(call=0.02, remembers=True)) is None
