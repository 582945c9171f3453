"""What explains the gradients of ranks, and which rank is the cause of a failure, without processes."""

from types import SimpleNamespace

import numpy as np
import pytest

from xverify.errors import Crashed, Failed, TimedOut
from xverify.messages.training import StepTaken
from xverify.processes.ranks import RankedWorker
from xverify.results.records import Check
from xverify.results.verdicts import Verdict
from xverify.training.ranks import Part, RankedStep, added_by_all, apart, own_agreement
from xverify.training.step import Step
from xverify.verdict.findings import StepTruth
from xverify.workload.ranks import Ranks

FLOOR = 1e-6
ALONE = [np.array([1.0, -2.0, 0.5]), np.array([3.0, 0.0, -1.5])]


def ranked(ranks, taken):
    """A step of one parameter, w. taken: of every rank, the results."""
    shares = ranks.shares
    right = sum(share * each for share, each in zip(shares, ALONE)) if ranks.items else ALONE[0]
    truth = StepTruth(1.0, FLOOR, {"w": FLOOR}, {"w": 1.0})
    arrays = [{"gradient/w": each, "noise/gradient/w": np.full(3, FLOOR)} for each in ALONE]
    step = Step(
        0, 0, taken[0], {"w": np.ones(3)}, {}, {"gradient/w": right, "noise/gradient/w": np.full(3, FLOOR)}, truth, {}
    )
    parts = [Part(truth, each) for each in arrays] if ranks.items else []
    return RankedStep(step, ranks, taken, 1.0, SimpleNamespace(parts=parts, with_biases={"b": 1.5})), right


def reasons(ranks, found):
    """What is said of the gradients of the ranks."""
    taken = [{"gradient/w": np.float32(each), "weight/w": np.ones(3)} for each in found]
    step, _ = ranked(ranks, taken)
    checks = step.judge([Check("gradients", 0, Verdict.DIFFERENT, 99.0, "w: its error is large")])
    assert [each.name for each in checks] == ["gradients", "ranks"]
    return checks[0].says, checks[1].says


EVEN, UNEVEN, WHOLE = Ranks("own", 2, (4, 4)), Ranks("own", 2, (6, 2)), Ranks("tp", 2)
MEAN = (ALONE[0] + ALONE[1]) / 2


@pytest.mark.parametrize(
    ("ranks", "found", "says"),
    [
        (EVEN, ALONE, "it was not reduced: each rank has the gradient of its own items"),
        (EVEN, [MEAN, ALONE[1]], "that of rank 1 was not reduced"),
        (EVEN, [2 * MEAN] * 2, "it is 2 times the right one"),
        (EVEN, [MEAN / 2] * 2, "it is the right one divided by 2"),
        (EVEN, [ALONE[0] / 2] * 2, "the share of rank 1 is missing in it"),
        (EVEN, [ALONE[1]] * 2, "alone, on every rank"),
        (UNEVEN, [MEAN] * 2, "which are means over 6 and 2 items: weigh each by its items"),
        (UNEVEN, [2 * MEAN] * 2, "it is the sum of the ranks' gradients"),
        (WHOLE, [ALONE[0] * [1, 0, 0], ALONE[0] * [0, 1, 1]], "each rank has a part of the sum"),
        (WHOLE, [2 * ALONE[0]] * 2, "it is 2 times the right one"),
    ],
)
def test_a_gradient_is_explained(ranks, found, says):
    of_gradients, of_ranks = reasons(ranks, found)
    same = all(np.array_equal(each, found[0]) for each in found)
    assert says in (of_gradients if same or ranks == WHOLE else of_ranks), (of_gradients, of_ranks)
    assert (of_ranks == "") == same


def test_an_unknown_gradient_gets_no_explanation():
    assert reasons(EVEN, [np.array([7.0, 7.0, 7.0])] * 2) == ("w: its error is large", "")


def test_what_a_rank_keeps_is_compared_to_the_last_bit():
    plain = {"gradient/w": MEAN, "weight/w": np.ones(3, np.float32), "state/w/0": np.ones(3)}
    for key, says in [("weight/w", "rank 1: w after the step"), ("state/w/0", "rank 1: the optimizer state of w")]:
        other = {**plain, key: plain[key] * (1 + 2.0**-23)}
        found = ranked(EVEN, [plain, other])[0].judge([])[0]
        assert (found.verdict, found.says.startswith(says)) == (Verdict.DIFFERENT, True), found.says
    assert ranked(EVEN, [plain, plain])[0].judge([])[0].verdict == Verdict.EQUAL


def test_the_ranks_of_an_own_step_are_compared():
    watched, timed = {"1/gradient/0/fc.bias": MEAN}, {"1/weight/fc.bias": MEAN}
    assert own_agreement(1, [watched] * 2, [timed] * 2).verdict == Verdict.EQUAL
    found = own_agreement(1, [watched, {"1/gradient/0/fc.bias": ALONE[0]}], [timed] * 2)
    assert "rank 1: the gradient of fc.bias that an optimizer is given" in found.says
    assert (
        "rank 1: fc.bias after the step"
        in own_agreement(1, [watched] * 2, [timed, {"1/weight/fc.bias": ALONE[0]}]).says
    )


def test_batch_norms_of_each_rank_have_the_mean_of_their_exact_steps():
    step, right = ranked(UNEVEN, [{"gradient/w": MEAN}] * 2)
    parts = [
        Part(
            StepTruth(loss, 1e-7, {"w": FLOOR}, {"w": 1.0}), {"gradient/w": each, "noise/gradient/w": np.full(3, FLOOR)}
        )
        for loss, each in zip((1.0, 3.0), ALONE)
    ]
    found = apart(step.step, parts, UNEVEN)
    assert found.truth.loss == 1.5
    assert np.allclose(found.exact["gradient/w"], right)
    assert found.truth.floors["w"] == pytest.approx(FLOOR * np.hypot(0.75, 0.25))


def test_a_bias_that_every_rank_adds_is_named():
    truth = StepTruth(1.0, 1e-7)
    assert added_by_all(1.5, WHOLE, truth, {"a": 1.2, "b": 1.5}) == ": as if b were added on each of the 2 ranks"
    assert added_by_all(1.4, WHOLE, truth, {"a": 1.2, "b": 1.5}) == ""


@pytest.mark.parametrize(
    ("errors", "late", "kind", "says"),
    [
        (
            {0: Failed("Connection closed by peer"), 1: Crashed("killed by SIGKILL")},
            [],
            Crashed,
            "rank 1: killed by SIGKILL",
        ),
        (
            {0: Failed("Timed out waiting 9ms"), 1: Crashed("killed")},
            [1],
            TimedOut,
            "rank 1 did not answer: rank 0 waited 9 s",
        ),
        ({0: Failed("Timed out waiting 9ms")}, [], Failed, "a collective operation that rank 1 did not call"),
        (
            {0: Failed("Timed out waiting"), 1: Failed("Timed out waiting ")},
            [],
            Failed,
            "the ranks call different ones",
        ),
        ({0: Crashed("killed"), 1: Failed("ValueError")}, [0], Failed, "rank 1: ValueError"),
        ({0: Failed("Connection closed by peer"), 1: Failed("Broken pipe")}, [], Failed, "rank 0: Connection closed"),
    ],
)
def test_the_rank_that_is_the_cause_is_named(errors, late, kind, says):
    worker = SimpleNamespace(waits=9, ranks=EVEN)
    found = RankedWorker._blamed(worker, errors, late)
    assert type(found) is kind
    assert says in str(found)


def test_losses_are_averaged_over_the_items():
    worker, together = SimpleNamespace(ranks=UNEVEN), RankedWorker._together
    step = together(worker, [StepTaken(1.0, 1.0, ()), StepTaken(3.0, 5.0, ())])
    assert (step.loss, step.step_loss) == (1.5, 2.0)
    assert together(worker, [(1.0, float("nan"), 9.0), (3.0, 1.0, 9.0)])[0] == 1.5
    assert len(together(worker, [(1.0, float("nan"), 9.0), (3.0, 1.0, 9.0)])) == 2
    assert together(worker, [({"a": 1.0},), ({"a": 3.0},)]) == ({"a": 1.5},)
    assert together(worker, ["digest", "digest"]) == "digest"
    with pytest.raises(Failed, match="rank 1 has other weights than rank 0"):
        together(worker, ["digest", "another"])
