"""What a candidate keeps of a process run that fails, with a worker that dies on request."""

import pytest

from xverify.engine.candidate import Candidate
from xverify.engine.stages import History, Subject, Timed
from xverify.errors import Crashed
from xverify.framework import discovery
from xverify.progress import Listener
from xverify.reference.request import resolve
from xverify.results.records import ProcessRun, Sample
from xverify.workload.options import RunSettings

FINISHED = ProcessRun(0, 1.0, 1.0, 0.1, 0.1, 3, 0.1, True)
OLD, NEW = Sample(0, 0, 5, 0.1, 0), Sample(0, 0, 5, 0.1, 1)


class Dies:
    """A worker that has crashed."""

    pid = 0
    closed = False

    def __init__(self, folder):
        self.folder = folder

    def ask(self, question):
        raise Crashed("killed by SIGKILL")

    def peak_rss_mib(self):
        return None

    def close(self):
        self.closed = True


@pytest.fixture
def make(tmp_path):
    request, folder = resolve("mlp", ["numpy"], RunSettings())

    def call(history):
        subject = Subject(discovery.load("numpy"), "eager")
        return Candidate(request, folder, subject, Dies(tmp_path), Listener(), history)

    return call


def fail(candidate):
    class Gate:
        def block(self, before, after):
            return None

    assert candidate.time_block(Gate(), 1, 0, 5, False, True) is None
    assert not candidate.alive
    assert candidate.worker.closed


def test_a_process_run_that_fails_leaves_none_of_its_blocks_beside_finished_ones(make):
    candidate = make(History(1, (FINISHED,), (OLD,)))
    candidate.take(Timed((NEW,)))
    assert candidate.measurements().samples == (OLD, NEW)
    fail(candidate)
    assert candidate.measurements().samples == (OLD,)
    candidate.take(Timed((NEW,)))  # the rounds end after the failure, and hand over what they have
    assert candidate.measurements().samples == (OLD,)
    assert candidate.measurements().ended == "it ended in process run 2: killed by SIGKILL"


def test_a_first_process_run_that_fails_keeps_what_it_measured(make):
    candidate = make(History())
    fail(candidate)
    candidate.take(Timed((OLD,)))
    assert candidate.measurements().samples == (OLD,)
