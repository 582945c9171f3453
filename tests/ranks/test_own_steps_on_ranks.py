"""A train_step of the model file on several ranks: right steps are EQUAL, and ranks that do not agree are named."""

import pytest
from helpers.rankmodels import BY_HAND, GOAL, STEP, folder

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


def test_batch_norms_of_an_own_step_are_refused(xverify, tmp_path):
    norm = "\nclass Normed(Net):\n    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(12)\n"
    norm += "\n    def forward(self, x):\n        return super().forward(self.norm(x))\n\nbuild = Normed\n"
    done = xverify("run", folder(tmp_path / "own", {"torch": STEP + norm}, GOAL), *OWN)
    assert done.code == 3, done.out + done.err
    assert "the batch norms of each rank use its own items" in done.row("torch:eager")["reason"]
