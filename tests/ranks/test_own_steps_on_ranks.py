"""A train_step of the model file on several ranks: right steps are EQUAL, and ranks that do not agree are named."""

import pytest
from helpers.rankmodels import BY_HAND, GOAL, NORMED, STEP, folder

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
OWN = ("--task", "train", "--steps", "3", "--threads", "2", "--ranks", "2", "--no-timing")
PARTLY = BY_HAND.replace("model.parameters()", "[model.fc1.weight, model.fc1.bias, model.fc2.weight]")
# Norms of the parts of the gradient are taken before they are reduced.
CLIPPED = BY_HAND.replace("    if dist", "    nn.utils.clip_grad_norm_(model.parameters(), 0.05)\n    if dist")
SUMMED = BY_HAND.replace("average(", "distributed.all_reduce(")


@pytest.mark.parametrize("plan", ["ddp", "fsdp"])
def test_an_own_step_trains_equally(xverify, tmp_path, plan):
    done = xverify("run", folder(tmp_path / "own", {"torch": STEP}, GOAL), *OWN, "--plan", plan)
    assert done.code == 0, done.out + done.err
    row = done.row("torch:eager")
    assert row["error"]["verdict"] == "EQUAL"
    assert {each["name"] for each in row["training"]["checks"]} >= {"loss", "gradients", "update", "state", "ranks"}
    assert row["training"]["ranks"] == f"2 ranks, plan {plan}, 4 + 4 items"


def test_reductions_of_an_own_step_are_compared(xverify, tmp_path):
    wrong = {"torch-partly": PARTLY, "torch-clipped": CLIPPED, "torch-summed": SUMMED}
    files = {name: STEP + text for name, text in {"torch": BY_HAND, **wrong}.items()}
    done = xverify("run", folder(tmp_path / "own", files, GOAL), *OWN, "--plan", "own")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    for name in wrong:
        assert done.row(f"{name}:eager")["error"]["verdict"] == "DIFFERENT", name
    says = "rank 1: the gradient of fc2.bias that an optimizer is given differs from rank 0's: it was not reduced"
    assert says in done.row("torch-partly:eager")["error"]["reason"]


def test_batch_norms_of_an_own_step_use_the_items_of_their_rank(xverify, tmp_path):
    """The reference does the same: with all items, and with statistics of rank 1, something differs."""
    of_rank_1 = """
def train_step(model, optimizer, batch, step=train_step):
    losses = step(model, optimizer, batch)
    if distributed.is_initialized():
        for name, each in model.named_buffers():
            distributed.broadcast(each, 1)
    return losses
"""
    whole = (
        NORMED.replace("self.norm(x)", "self.normalised(x)").replace("build = Normed\n", "")
        + """
    def normalised(self, x):
        if not distributed.is_initialized():
            return self.norm(x)
        from torch.distributed.nn.functional import all_reduce
        mean = all_reduce(x.mean(0)) / 2
        variance = all_reduce((x - mean).square().mean(0)) / 2
        return (x - mean) / (variance + 1e-5).sqrt() * self.norm.weight + self.norm.bias

build = Normed
"""
    )
    slower = STEP.replace("momentum=0.9", "momentum=0.8")
    files = {"torch": STEP + NORMED, "torch-first": STEP + NORMED + of_rank_1, "torch-whole": STEP + whole}
    place = folder(tmp_path / "own", {**files, "torch-slower": slower + NORMED}, GOAL.replace("batch=8", "batch=16"))
    done = xverify("run", place, *OWN)
    assert done.code == 1, done.out + done.err
    training = done.row("torch:eager")["training"]
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert training["apart"] == ["norm"]
    assert {each["name"] for each in training["checks"]} >= {"loss", "gradients", "update", "statistics", "ranks"}
    differs = {"first": "norm.running_", "whole": "step 0", "slower": "the optimizer behaves as momentum 0.8"}
    for name, says in differs.items():
        error = done.row(f"torch-{name}:eager")["error"]
        assert error["verdict"] == "DIFFERENT", name
        assert says in error["reason"]


def test_batch_norms_of_uneven_parts(xverify, tmp_path):
    """A loss that is weighed by the items of each rank is right, whose norms use these items; the mean of means is wrong."""
    weighed = STEP.replace("loss.backward()", "(loss * len(batch['x']) / 12).backward()")
    files = {"torch": weighed + NORMED, "torch-means": STEP + NORMED}
    files["torch"] = files["torch"].replace("/ 12)", "* (2 / 24 if distributed.is_initialized() else 1 / 24))")
    place = folder(tmp_path / "own", files, GOAL.replace("batch=8", "batch=24"))
    done = xverify("run", place, *OWN, "--shards", "2,1")
    assert done.code == 1, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL"
    assert done.row("torch-means:eager")["error"]["verdict"] == "DIFFERENT"


def test_a_batch_norm_of_a_part_of_the_batch_is_refused(xverify, tmp_path):
    norm = NORMED.replace("self.norm(x)", "torch.cat([self.norm(x[1:]), x[:1]])")
    done = xverify("run", folder(tmp_path / "own", {"torch": STEP + norm}, GOAL), *OWN)
    assert done.code == 3, done.out + done.err
    assert "that of norm has size 7, and the batch has 8 items" in done.row("torch:eager")["reason"]


# ZeRO-1 by torch. Each rank updates a part of the parameters, and gives them to the others.
ZERO = (
    STEP.replace("return torch", "return zero(model) if distributed.is_initialized() else torch")
    + """
from torch.distributed.optim import ZeroRedundancyOptimizer

def zero(model):
    return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.SGD, lr=0.1, momentum=0.9)
"""
)
NOT_GIVEN = "ZeroRedundancyOptimizer._sync_params = lambda self: None"


def test_the_optimizer_of_torch_that_divides_the_parameters_is_right(xverify, tmp_path):
    wrong = {"torch-rate": ZERO.replace("SGD, lr=0.1", "SGD, lr=0.11"), "torch-not-given": ZERO + NOT_GIVEN}
    files = {"torch": ZERO, **wrong}
    done = xverify("run", folder(tmp_path / "own", files, GOAL), *OWN)
    assert done.code == 1, done.out + done.err
    row = done.row("torch:eager")
    assert (row["error"]["verdict"], row["training"]["state_left_out"]) == ("EQUAL", {})
    assert "learning rate 0.11" in done.row("torch-rate:eager")["error"]["reason"]
    says = done.row("torch-not-given:eager")["error"]["reason"]
    assert "makes no update of" in says
    assert "and is not given that of rank" in says
