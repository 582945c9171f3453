"""What the rungs of layers leave for those of whole steps."""

from xverify.ladder import WIDER, Ladder, Learner, Local
from xverify.optimizers import optimizer
from xverify.records import Error, Layers, Rung
from xverify.step import Step

ROUNDED = (
    Rung("forward", 0, "DRIFT", 142.0, "sums lose digits", "rounding"),
    Rung("backward", 0, "EQUAL", 2.0),
)


def test_layers_that_round_more_leave_more_room_and_wrong_ones_none():
    assert Local.of(ROUNDED) == Local(142.0, 142.0)
    assert Local.of((Rung("forward", 0, "EQUAL", 1.0), Rung("backward", 0, "EQUAL", 2.0))) == Local(WIDER, 1.0)
    assert Local.of((*ROUNDED, Rung("backward", 0, "DIFFERENT", 50.0))).wider is None
    assert Local.of((Rung("forward", 0, "UNTESTED"),) * 2).wider is None


def test_a_later_launch_is_judged_with_the_room_of_the_first():
    ladder = object.__new__(Ladder)
    ladder.replayed = {("jittor",): (list(ROUNDED), Layers(known=1, subject="jittor"))}
    seen = []

    def rungs(learner, index, local, untested, size):
        seen.append(local)
        return [Rung("statistics", 0, "DIFFERENT", 99.0, "off")]

    ladder._rungs = rungs
    learner = Learner("jittor", None, optimizer("sgd"), (), {}, ("jittor",))
    after = ladder.again(learner, Error("EQUAL", None))
    assert seen == [Local(142.0, 142.0)]
    assert (after.verdict, after.reason) == ("DIFFERENT", "in a later launch: statistics: off")


def test_a_loss_is_named_rounding_when_its_layers_round_as_far_and_is_never_excused():
    ladder = object.__new__(Ladder)
    ladder._rows = lambda: (8,)

    def judged(floors, rounding):
        step = Step(0, 0, {}, {}, {}, {}, {"loss": 2.0, "loss_floor": 1e-6}, {})
        loss = 2.0 + floors * 1e-6
        rung = ladder._loss(step, {"loss": loss, "step_loss": loss}, rounding)
        return rung.verdict, rung.difference

    assert judged(9, 1.0) == ("EQUAL", "")
    assert judged(12, 1.0) == ("DRIFT", "")
    assert judged(12, 11.0) == ("DRIFT", "")
    assert judged(12, 142.0) == ("DRIFT", "rounding")
    assert judged(35, 142.0) == ("DIFFERENT", "")
