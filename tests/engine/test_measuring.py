"""What is measured of one process run, with a worker that answers from memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from xverify.engine.measuring import call_again
from xverify.messages import Block, Timed


class Remembering:
    """A worker whose model computes an input only when the call before had another one."""

    folder = Path()

    def __init__(self, last: int) -> None:
        self.last = last

    def ask(self, question: Block) -> Timed:
        assert question.calls == 1
        seconds, self.last = (1e-7 if question.case == self.last else 4e-3), question.case
        return Timed(seconds)


@pytest.mark.parametrize("cases", [2, 4])
@pytest.mark.parametrize("last", [0, 1])
def test_every_call_after_the_clock_is_on_another_input_than_the_call_before(cases, last):
    assert call_again(Remembering(last), cases, last, set()).new_input_seconds == 4e-3


def test_with_one_input_case_no_new_input_is_timed():
    assert call_again(Remembering(0), 1, 0, set()).new_input_seconds == 0.0


def test_missing_outputs_are_kept_and_those_of_the_last_case_twice():
    again = call_again(Remembering(1), 4, 1, {1, 2})
    assert again.outputs == {0: Path("outputs-0.npz"), 3: Path("outputs-3.npz")}
    assert again.second == Path("again.npz")


@pytest.mark.parametrize(("seconds", "expected"), [(0.1, [2]), (0.03, [2, 3]), (1e-3, [2, 3, 0])])
def test_when_all_outputs_were_kept_other_inputs_are_called_until_a_pause_matters_little(seconds, expected):
    worker = Remembering(1)
    asked = []
    worker.ask = lambda question: asked.append((question.case, question.keep)) or Timed(seconds)
    again = call_again(worker, 4, 1, {0, 1, 2, 3})
    assert asked == [(case, "again.npz") for case in expected]
    assert (again.outputs, again.case, again.second) == ({}, expected[-1], Path("again.npz"))
    assert again.new_input_seconds == seconds
