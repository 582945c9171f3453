"""What one subject's candidate asks of its worker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from xverify.engine.candidate import Candidate
from xverify.results.records import Sample


class Remembering:
    """A worker whose model computes an input only when the call before had another one."""

    folder = Path()

    def __init__(self, last: int) -> None:
        self.last = last

    def request(self, operation: str, case: int, calls: int, keep: str | None = None) -> dict[str, Any]:
        assert (operation, calls) == ("block", 1)
        seconds, self.last = (1e-7 if case == self.last else 4e-3), case
        return {"seconds": seconds}


@pytest.mark.parametrize("cases", [2, 4])
@pytest.mark.parametrize("last", [0, 1])
def test_every_call_alone_is_on_another_input_than_the_call_before(cases, last):
    candidate = Candidate(SimpleNamespace(cases=cases), None, None, "eager", Remembering(last), None)
    candidate.samples = [Sample(0, last, 15, 0.06)]
    candidate._call_again()
    assert candidate.alone == 4e-3


def test_a_single_input_case_tells_nothing_about_remembering():
    candidate = Candidate(SimpleNamespace(cases=1), None, None, "eager", Remembering(0), None)
    candidate.samples = [Sample(0, 0, 15, 0.06)]
    candidate._call_again()
    assert candidate.alone == 0.0
