"""What a candidate keeps of a process run that fails, with a worker that dies on request."""

import pytest

from xverify.engine.candidate import Candidate
from xverify.engine.stages import Built, History, Subject, Timed, Warmed
from xverify.errors import Crashed
from xverify.framework import discovery
from xverify.messages import Block, ReleaseMemory, Started
from xverify.messages import Timed as BlockTimed
from xverify.progress import Listener
from xverify.reference.request import resolve
from xverify.results.records import ProcessRun, Sample
from xverify.workload.options import RunSettings

FINISHED = ProcessRun(0, 1.0, 1.0, 0.1, 0.1, 3, 0.1, True)
OLD, NEW = Sample(0, 0, 5, 0.1, 0), Sample(0, 0, 5, 0.1, 1)


class Dies:
    """A worker that has crashed."""

    pids = (0,)
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


class Answers(Dies):
    """A worker that answers, and remembers what it was asked."""

    import_rss_mib = 1.0

    def __init__(self, folder):
        super().__init__(folder)
        self.asked = []

    def ask(self, question):
        self.asked.append(question)
        return BlockTimed(1.0)

    def page_faults(self):
        return None


@pytest.mark.parametrize(
    ("calls", "second", "blocks"),
    [((1, 1, 2, 2), True, 0), ((2, 2, 4, 4), True, 1), ((1, 1, 2, 2), False, 1)],
    ids=["two timed calls suffice", "no call was on a new input", "only the last outputs were kept"],
)
def test_inputs_are_called_again_only_where_no_two_timed_calls_show_it(make, tmp_path, calls, second, blocks):
    candidate = make(History())
    cases = candidate.request.cases
    candidate.worker = Answers(tmp_path)
    candidate.started, candidate.built = Started({}, 1.0), Built(1.0, {}, "", "")
    candidate.warmed = Warmed(1.0, 1.0, 4, 4.0, 1.0, True, None, None, rss_mib=(1.0,))
    samples = tuple(Sample(index, index % cases, count, float(count), 0) for index, count in enumerate(calls))
    outputs = {case: tmp_path / f"outputs-{case}" for case in range(cases)}
    earlier = {1: tmp_path / "earlier"} if second else {}
    candidate.take(Timed(samples, outputs, earlier))
    candidate.finish()
    assert candidate.alive, candidate.failure
    assert [type(each) for each in candidate.worker.asked].count(Block) == blocks
    assert any(isinstance(each, ReleaseMemory) for each in candidate.worker.asked)
    again = candidate.measured.repeated
    expected = (1, tmp_path / "earlier") if not blocks else (again.case, tmp_path / "again.npz")
    assert (again.case, again.second, again.new_input_seconds) == (*expected, 1.0)
