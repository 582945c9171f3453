"""The rounds of one process run, with candidates and a noise gate that only keep books."""

from pathlib import Path

from xverify.engine import rounds
from xverify.engine.stages import TimedBlock
from xverify.progress import Listener
from xverify.reference.request import resolve
from xverify.results.records import Sample
from xverify.timing import plan
from xverify.workload.options import RunSettings


class Book:
    """A candidate whose blocks are noisy in some rounds, and that fails in some round."""

    run = 0
    seconds_per_call = 0.01

    def __init__(self, label, noisy=(), fails=None):
        self.label, self.noisy, self.fails = label, noisy, fails
        self.timed = None

    def time_block(self, gate, index, case, calls, keep, first_kept):
        if self.fails is not None and index >= self.fails:
            return None
        sample = Sample(index, case, calls, 0.01 * calls, self.run)
        return TimedBlock(
            sample, "other processes" if index in self.noisy else None, Path(f"kept {index}") if keep else None
        )

    def take(self, timed):
        self.timed = timed


class Quiet(rounds.Gate):
    """A gate of a machine whose speed never changes."""

    def canary(self):
        return None


def interleaved(monkeypatch, *candidates):
    monkeypatch.setattr(rounds, "Gate", Quiet)
    request, _ = resolve("mlp", ["numpy"], RunSettings(cases=2))
    gate = rounds.interleave(candidates, request, plan.EFFORTS["quick"], None, Listener()).gate
    return gate, [{sample.round: sample.dropped for sample in each.timed.samples} for each in candidates]


def test_one_noisy_block_drops_the_whole_round_and_no_other(monkeypatch):
    gate, (noisy, quiet) = interleaved(monkeypatch, Book("noisy", noisy={1, 4}), Book("quiet"))
    assert len(quiet) == gate.rounds > 5
    assert noisy == quiet == {index: "other processes" if index in (1, 4) else None for index in quiet}
    assert gate.dropped == 2


def test_a_candidate_that_fails_keeps_its_blocks_and_the_others_go_on(monkeypatch):
    gate, (fails, goes_on) = interleaved(monkeypatch, Book("fails", fails=3), Book("goes on", noisy={3}))
    assert fails == {0: None, 1: None, 2: None}
    assert len(goes_on) == gate.rounds
    assert [index for index, dropped in goes_on.items() if dropped] == [3]


def test_the_last_block_on_every_case_is_kept_and_one_before_it(monkeypatch):
    candidate = Book("one")
    interleaved(monkeypatch, candidate)
    last = len(candidate.timed.samples) - 1
    assert candidate.timed.outputs == {1: Path(f"kept {last}"), 0: Path(f"kept {last - 1}")}
    assert candidate.timed.earlier == {1: Path(f"kept {last - 2}"), 0: Path(f"kept {last - 3}")}
    assert candidate.timed.unfinished == (0.0,) * (rounds.KEPT_BLOCKS + 1)
