"""Of an export, whose batch is fixed, the first items are judged; all items decide where not every layer is EQUAL in them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from xverify import messages
from xverify.errors import Crashed, Failed
from xverify.reference.layers import Captured
from xverify.reference.replayed import capture_layers, replay_layers
from xverify.reference.truth import Truth
from xverify.results.layers import LayerError, Layers
from xverify.results.verdicts import Verdict


def judged(verdict, **more):
    return Layers((LayerError("fc", "Linear", 1, 1.0, 1.0, 0.0, verdict),), compared=1, known=1, subject="port", **more)


RIGHT, WRONG = judged(Verdict.EQUAL), judged(Verdict.DIFFERENT)


class Replay:
    """Answers for the reference. part: what it finds in the first items; an error is raised. whole: the same in all items."""

    layers = ("fc",)
    process = prepared = None

    def __init__(self, part, whole, broken=""):
        self.found, self.broken = {True: part, False: whole}, broken
        self.captured = []

    def capture(self, worker, folder, returned=None, *, part=False, case=0):
        self.captured.append(part)
        reply = messages.Captured(("a record",), {}, (), False, self.broken)
        return Captured(reply, folder, Path("inputs.npz"), {}, part=part, case=case)

    def replay(self, captured, subject):
        found = self.found[captured.part]
        if isinstance(found, Exception):
            raise found
        return found, ()


def layers(replay):
    worker = SimpleNamespace(folder=Path("absent"), framework=SimpleNamespace(captured_mode="eager"))
    captured = capture_layers(replay, worker)
    found = replay_layers(replay, Truth({}, {}), worker, "port", captured, borrowed=False, kept={})
    return found.layers


def test_the_first_items_are_enough_where_every_layer_is_equal_in_them():
    replay = Replay(RIGHT, WRONG)
    assert layers(replay).verdict == Verdict.EQUAL
    assert replay.captured == [True]


@pytest.mark.parametrize(
    "part",
    [WRONG, judged(Verdict.DRIFT), judged(Verdict.EQUAL, stopped="at fc"), Failed("another shape")],
    ids=["a layer differs", "a layer drifts", "stopped", "the replay fails"],
)
@pytest.mark.parametrize("whole", [RIGHT, WRONG], ids=["right", "wrong"])
def test_all_items_decide_in_every_other_case(part, whole):
    replay = Replay(part, whole)
    assert layers(replay).verdict == whole.verdict
    assert replay.captured == [True, False]


def test_all_items_decide_where_the_captured_pass_broke():
    replay = Replay(RIGHT, RIGHT, broken="ValueError")
    assert layers(replay).stopped == "the captured pass failed: ValueError"
    assert replay.captured == [True, False]


def test_a_crash_of_the_reference_is_not_hidden():
    with pytest.raises(Crashed):
        layers(Replay(Crashed("it ended"), RIGHT))
