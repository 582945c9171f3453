"""The questions of the training-parity checks to workers, and the use of their answers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from xverify.errors import Absent, Crashed
from xverify.messages.training import StepTaken, TrainingCaptured, TrainingState
from xverify.progress import Listener
from xverify.reference.build import ReferenceProcess
from xverify.results.records import Check, Error, Layers
from xverify.results.verdicts import Verdict
from xverify.training.checks import Local
from xverify.training.learner import Learner
from xverify.training.parity import TrainingParity
from xverify.workload.optimizers import optimizer

ROUNDED = (
    Check("forward", 0, Verdict.DRIFT, 142.0, "sums lose digits", "rounding"),
    Check("backward", 0, Verdict.EQUAL, 2.0),
)


def learner(label, worker=None, key=("torch",)):
    return Learner(label, worker, optimizer("sgd"), (), {}, key)


def test_a_later_process_run_is_judged_with_the_limits_of_the_first():
    parity = object.__new__(TrainingParity)
    parity._replayed = {("jittor",): (ROUNDED, Layers(known=1, subject="jittor"))}
    seen = []

    def checks(learner, index, taken, local, coverage, distance):
        seen.append(local)
        return [Check("statistics", 0, Verdict.DIFFERENT, 99.0, "off")]

    parity._judge_step, parity._step = checks, lambda learner, index: None
    after = parity.judge_again(learner("jittor", key=("jittor",)), Error(Verdict.EQUAL, None))
    assert seen == [Local(142.0, 142.0)]
    assert (after.verdict, after.reason) == ("DIFFERENT", "in a later process run: statistics: off")


class Subject:
    """A worker that answers every question and records it."""

    ANSWERS = {
        "CaptureTraining": TrainingCaptured(records=("a record",), channels_last=False, loss=0.5),
        "TrainingStep": StepTaken(loss=0.5, step_loss=0.5, sparse=()),
        "ReleaseMemory": None,
    }

    def __init__(self, folder, crashes=()):
        self.folder, self.crashes, self.asked = folder, crashes, []
        folder.mkdir()

    def ask(self, question):
        name = type(question).__name__
        self.asked.append(name)
        if name in self.crashes:
            raise Crashed("it is gone")
        return self.ANSWERS[name]


def test_layers_are_judged_once_for_subjects_that_build_the_same_model(tmp_path):
    request = SimpleNamespace(optimizer=optimizer("sgd"), seed=0, cases=1)
    process = ReferenceProcess(request, None, Subject(tmp_path / "reference"), Listener())
    parity = TrainingParity(process, SimpleNamespace(few_training=tmp_path / "few.npz"))
    parity.layers, parity.states = ("fc",), (TrainingState("", "", 0),)
    subjects = [Subject(tmp_path / name, crashes) for name, crashes in (("a", ["TrainingStep"]), ("b", ()), ("c", ()))]
    learners = [learner(f"torch:{i}", each) for i, each in enumerate(subjects)]

    with pytest.raises(Crashed):
        parity.observe(learners[0])
    observed = [parity.observe(each) for each in learners[1:]]
    assert [each.captured for each in observed] == [None, None]
    judged = Layers(known=1, compared=1)
    parity._replay = lambda learner, captured: ((captured.loss,), replace(judged, subject=learner.label))
    for each, seen in zip(learners[1:], observed):
        assert parity._judge_layers(each, seen.captured) == ((0.5,), replace(judged, subject="torch:1"))
    # The first subject crashed after capturing its layers, so they were not judged. The second must capture its own, the third not.
    assert [each.asked for each in subjects] == [
        ["CaptureTraining", "TrainingStep"],
        ["TrainingStep", "ReleaseMemory", "CaptureTraining"],
        ["TrainingStep", "ReleaseMemory"],
    ]
    assert process.worker.asked == [], "observe must not use the process of the reference"


def test_a_capture_that_fails_is_tried_with_the_next_subject_of_the_build(tmp_path):
    request = SimpleNamespace(optimizer=optimizer("sgd"), seed=0, cases=1)
    process = ReferenceProcess(request, None, Subject(tmp_path / "reference"), Listener())
    parity = TrainingParity(process, SimpleNamespace(few_training=tmp_path / "few.npz"))
    parity.layers, parity.states = ("fc",), (TrainingState("", "", 0),)
    fails, works, later = (learner(f"torch:{name}", Subject(tmp_path / name)) for name in ("fails", "works", "later"))
    fails.worker.ANSWERS = Subject.ANSWERS | {"CaptureTraining": TrainingCaptured((), False, 0.5)}
    observed = [parity.observe(each) for each in (fails, works, later)]
    assert [type(each.captured) for each in observed] == [Absent, TrainingCaptured, type(None)]
    assert observed[0].captured == Absent("no layer could be captured")
    checks, layers = parity._judge_layers(fails, observed[0].captured)
    assert [check.verdict for check in checks] == ["UNTESTED", "UNTESTED"]
    assert (layers.subject, layers.stopped) == ("torch:fails", "no layer could be captured")
    done = Layers(known=1, compared=1, subject="torch:works")
    parity._replay = lambda learner, captured: ((captured.loss,), done)
    assert parity._judge_layers(works, observed[1].captured) == ((0.5,), done)
    assert parity._judge_layers(later, observed[2].captured) == ((0.5,), done)
