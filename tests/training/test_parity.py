"""What the parity asks of its subjects, and what it does with the answers."""

from types import SimpleNamespace

import pytest

from xverify.errors import Crashed
from xverify.progress import Listener
from xverify.results.records import Check, Error, Layers
from xverify.training.checks import Local
from xverify.training.parity import Learner, TrainingParity
from xverify.workload.optimizers import optimizer

ROUNDED = (
    Check("forward", 0, "DRIFT", 142.0, "sums lose digits", "rounding"),
    Check("backward", 0, "EQUAL", 2.0),
)


def test_a_later_launch_is_judged_with_the_room_of_the_first():
    parity = object.__new__(TrainingParity)
    parity.replayed = {("jittor",): (list(ROUNDED), Layers(known=1, subject="jittor"))}
    seen = []

    def checks(learner, index, reply, local, untested, size):
        seen.append(local)
        return [Check("statistics", 0, "DIFFERENT", 99.0, "off")]

    parity._rungs, parity._step = checks, lambda learner, index: {}
    learner = Learner("jittor", None, optimizer("sgd"), (), {}, ("jittor",))
    after = parity.again(learner, Error("EQUAL", None))
    assert seen == [Local(142.0, 142.0)]
    assert (after.verdict, after.reason) == ("DIFFERENT", "in a later launch: statistics: off")


class Subject:
    """A worker that answers, and writes down what it was asked."""

    def __init__(self, folder, crashes=()):
        self.folder, self.crashes, self.asked = folder, crashes, []
        folder.mkdir()

    def request(self, operation, **arguments):
        self.asked.append(operation)
        if operation in self.crashes:
            raise Crashed("it is gone")
        return {"records": [1], "channels_last": False, "findings": [], "loss": 0.5}


def test_the_layers_of_one_subject_speak_for_all_that_build_the_same_model(tmp_path):
    reference = SimpleNamespace(
        worker=Subject(tmp_path / "reference"), listener=Listener(), space=tmp_path, few_training=tmp_path / "few.npz"
    )
    parity = TrainingParity(SimpleNamespace(optimizer=optimizer("sgd"), seed=0, cases=1), reference)
    parity.layers, parity.states = ["fc"], [{"weights": "", "optimizer_state": "", "steps": 0}]
    subjects = [Subject(tmp_path / name, crashes) for name, crashes in (("a", ["training_step"]), ("b", ()), ("c", ()))]
    learners = [Learner(f"torch:{i}", each, optimizer("sgd"), (), {}, ("torch",)) for i, each in enumerate(subjects)]

    with pytest.raises(Crashed):
        parity.observe(learners[0])
    observed = [parity.observe(learner) for learner in learners[1:]]
    assert [each.captured for each in observed] == [None, None]
    parity._replay = lambda learner, captured: ([captured["loss"]], Layers(known=1, subject=learner.label))
    for learner, each in zip(learners[1:], observed):
        assert parity._local(learner, each.captured) == ([0.5], Layers(known=1, subject="torch:1"))
    # The first captured and then crashed: nobody saw its layers, so the second is asked for its own, and the third is not.
    assert [each.asked for each in subjects] == [
        ["learn_capture", "training_step"],
        ["training_step", "release_memory", "learn_capture"],
        ["training_step", "release_memory"],
    ]
    assert reference.worker.asked == []  # of another process than the one that works beside
