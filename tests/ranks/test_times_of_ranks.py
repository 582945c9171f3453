"""What several ranks answer together, and when their clocks start, without any process."""

from types import SimpleNamespace

import pytest

from xverify.framework.discovery import load
from xverify.messages import Block, Timed, Warm, Warmed
from xverify.processes import memory
from xverify.processes.ranks import RankedWorker
from xverify.processes.worker import Worker
from xverify.worker.timing import time_calls
from xverify.workload.ranks import Ranks


class Answers(Worker):
    """A rank whose process is not started, and which has these answers; it remembers what it was asked."""

    def _answered(self, request):
        self.got = [*getattr(self, "got", ()), request]
        return self.replies.pop(0)


class AnsweringRanks(RankedWorker, Answers):
    pass


@pytest.fixture
def ranks(tmp_path):
    place = tmp_path / "worker"
    place.mkdir()
    worker = AnsweringRanks(Ranks("ddp", 2, (4, 4)), load("torch"), "python", place, 2, "cpu", 60.0)
    worker.others = [Answers(load("torch"), "python", tmp_path, 1, "cpu", 60.0)]
    worker.joined = True
    return worker


@pytest.mark.parametrize("seconds", [(1.0, 3.0), (3.0, 1.0)])
def test_the_time_of_a_block_is_that_of_the_slowest_rank(ranks, seconds):
    ranks.replies, ranks.others[0].replies = [[Timed(each)] for each in seconds]
    assert ranks.ask(Block(0, 2)) == Timed(3.0)


def test_a_warm_up_of_some_time_is_the_same_number_of_calls_on_all_ranks(ranks):
    ranks.replies = [Warmed(2, 0.2, 0.1), Warmed(8, 0.8, 0.1)]
    ranks.others[0].replies = [Warmed(2, 0.1, 0.05), Warmed(8, 0.4, 0.05)]
    assert ranks.ask(Warm(2, 1.0)) == Warmed(10, 1.0, 0.1)
    assert ranks.got == ranks.others[0].got == [Warm(2, 0.0), Warm(8, 0.0)]


def test_memory_is_known_where_it_is_known_of_every_rank():
    assert memory.total({1: 2.5, 2: 3.0}.get, [1, 2]) == 5.5
    assert memory.total({1: 2.5}.get, [1, 2]) is None


@pytest.mark.parametrize(("plan", "events"), [("ddp", "meet clock call clock"), ("", "clock call clock")])
def test_ranks_meet_before_the_clock_starts(plan, events):
    said = list[str]()

    def happens(what, value=None):
        return lambda *_: [said.append(what), value][1]

    runner = SimpleNamespace(wait=lambda _: None, times_itself=False)
    state = SimpleNamespace(
        call=happens("call"), runner=runner, clock=happens("clock", 0.0), cases=[()], plan=plan, blocking=True,
        framework=SimpleNamespace(meet=happens("meet")),
    )  # fmt: skip
    time_calls(state, 0, 1)
    assert said == events.split()
