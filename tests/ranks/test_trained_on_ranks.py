"""Training on several ranks through the command line: right ways are EQUAL, and ranks that fail are rows."""

import pytest
from helpers.rankmodels import AVERAGED, BREAKING, FAILURES, NORMED, folder

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
TRAIN = ("--task", "train", "--steps", "3", "--threads", "2", "--no-timing")


def verdict(done, subject="torch:eager"):
    return done.row(subject)["error"]["verdict"]


@pytest.mark.parametrize(("plan", "ranks"), [("ddp", 2), ("fsdp", 2), ("ddp", 4)])
def test_a_model_trains_equally_by_the_means_of_torch(xverify, tmp_path, plan, ranks):
    done = xverify(
        "run", folder(tmp_path / "net", {"torch": ""}), *TRAIN, "--ranks", ranks, "--plan", plan, "--optimizer", "adam"
    )
    assert done.code == 0, done.out + done.err
    assert verdict(done) == "EQUAL"
    training = done.row("torch:eager")["training"]
    assert training["ranks"] == f"{ranks} ranks, plan {plan}, {' + '.join([str(8 // ranks)] * ranks)} items"
    assert {each["name"] for each in training["checks"]} == {"weights", "loss", "gradients", "update", "ranks"}
    assert training["curve"]["verdict"] == "EQUAL"
    assert f"on {training['ranks']}" in " ".join(done.out.split())
    assert done.result["settings"]["ranks"] == ranks
    assert done.row("torch:eager")["speed"] is None
    assert "speed not measured, as --no-timing asks" in done.out
    assert len(done.result["rows"]) == 1, "nothing stands beside a row that is not timed"


def test_batch_norms_of_each_rank_are_told_and_those_by_hand_are_found(xverify, tmp_path):
    norm = "\nclass Normed(Net):\n    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(16)\n"
    norm += "\n    def forward(self, x):\n        return self.fc2(self.norm(self.fc1(x)).tanh())\n\nbuild = Normed\n"
    done = xverify("run", folder(tmp_path / "norm", {"torch": norm}), *TRAIN, "--ranks", 2)
    assert done.code == 0, done.out + done.err
    assert verdict(done) == "EQUAL"
    assert done.row("torch:eager")["training"]["apart"] == ["norm"]
    assert "the batch norms of each rank use its own items, and so do those of the reference: norm" in " ".join(
        done.out.split()
    )
    by_hand = norm.replace("self.norm(self.fc1(x)).tanh()", "(self.fc1(x) - self.fc1(x).mean(0)).tanh()")
    by_hand = by_hand.replace("        self.norm = nn.BatchNorm1d(16)\n", "")
    done = xverify("run", folder(tmp_path / "hand", {"torch": by_hand}), *TRAIN, "--ranks", 2)
    assert done.code == 1, done.out + done.err
    checks = done.row("torch:eager")["training"]["checks"]
    assert "is not synchronised" in next(each["says"] for each in checks if each["name"] == "gradients")


def test_ranks_that_fail_end_as_rows(xverify, tmp_path):
    files = {"torch": AVERAGED, **{f"torch-{name}": BREAKING.format(text) for name, (text, *_) in FAILURES.items()}}
    done = xverify("run", folder(tmp_path / "net", files), *TRAIN, "--ranks", 2, "--plan", "own", "--timeout", 40)
    assert done.code == 3, done.out + done.err
    assert verdict(done) == "EQUAL"
    for name, (_, says, status) in FAILURES.items():
        row = done.row(f"torch-{name}:eager")
        assert (row["status"], says in row["reason"]) == (status, True), (name, row["status"], row["reason"])


def test_a_plan_that_a_file_does_not_make_is_refused(xverify, tmp_path):
    changed = "def parallelize(model, mesh):\n    model.fc1 = nn.Linear(12, 8)\n    return model\n"
    files = {"torch": "", "torch-none": "def parallelize(model, mesh):\n    pass\n", "torch-changed": changed}
    done = xverify("run", folder(tmp_path / "net", files), *TRAIN, "--ranks", 2, "--plan", "own")
    assert done.code == 3, done.out + done.err
    assert "defines no parallelize(model, mesh), which --plan own calls" in done.row("torch:eager")["reason"]
    assert "parallelize returns a NoneType: return the model" in done.row("torch-none:eager")["reason"]
    assert "parallelize changes fc1.weight from (16, 12) to (8, 12)" in done.row("torch-changed:eager")["reason"]


def test_other_frameworks_and_modes_have_no_ranks(xverify):
    done = xverify("run", "mlp", *TRAIN, "--ranks", 2, "--subjects", "torch:compile,numpy")
    assert done.code == 3, done.out + done.err
    assert "several ranks train as the model is written: name torch:eager" in done.row("torch:compile")["reason"]
    assert "xverify trains with numpy in one process only" in done.row("numpy")["reason"]


@pytest.mark.parametrize("plan", ["ddp", "fsdp", "tp"])
def test_the_gpt_of_the_zoo_trains_equally(xverify, plan):
    done = xverify(
        "run", "gpt-tiny", *TRAIN, "--batch", 4, "--cases", 1, "--ranks", 2, "--plan", plan, "--subjects", "torch:eager"
    )
    assert done.code == 0, done.out + done.err
    assert verdict(done) == "EQUAL"


BEGUN = """
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


def parallelize(model, mesh):
    rank, count = mesh.get_local_rank(), mesh.size()
    {}
"""
BEGIN_ALIKE = {
    "ddp": "nn.init.normal_(model.fc1.weight); model.norm.running_mean += rank; return DistributedDataParallel(model)",
    "seeded": "torch.manual_seed(3); [each.reset_parameters() for each in (model.fc1, model.fc2)]; "
    "return reduced(model, average, NAMES)",
    "drawn-in-parts": "fully_shard(model, mesh=mesh); [nn.init.normal_(each) for each in model.parameters()]; return model",
    "broadcast": "model.fc2.reset_parameters(); [distributed.broadcast(each.data, 0) for each in model.fc2.parameters()]; "
    "return reduced(model, average, NAMES)",
}
BEGIN_APART = {
    "drawn": (
        "model.fc1.reset_parameters(); return reduced(model, average, NAMES)",
        "parallelize: fc1.weight, fc1.bias: broadcast",
    ),
    "not-synchronised": (
        "model.fc2.bias.data += 1e-3 * rank; return DistributedDataParallel(model, init_sync=False)",
        "the weights of rank 1 differ from those of rank 0 after parallelize: fc2.bias",
    ),
    "statistics": ("model.norm.running_var *= 1 + rank; return reduced(model, average, NAMES)", "parallelize: norm.running_var"),
    "part": (
        "model.fc1.weight.data *= 1 + rank; return fully_shard(model, mesh=mesh)",
        "after parallelize, rank 1 has other values of its part of fc1.weight, and rank 0 has those that it was given",
    ),
}  # fmt: skip


def test_ranks_begin_with_the_same_weights(xverify, tmp_path):
    names = "\nNAMES = [name for name, _ in Normed().named_parameters()]\n"
    texts = BEGIN_ALIKE | {name: text for name, (text, _) in BEGIN_APART.items()}
    files = {f"torch-{name}": NORMED + names + BEGUN.format(text) for name, text in texts.items()}
    files["torch"] = NORMED + names + AVERAGED.replace("average", "average, NAMES")
    done = xverify("run", folder(tmp_path / "begun", files), *TRAIN, "--ranks", 2, "--plan", "own", "--timeout", 60)
    assert done.code == 1, done.out + done.err
    assert {name: verdict(done, f"torch-{name}:eager") for name in BEGIN_ALIKE} == dict.fromkeys(BEGIN_ALIKE, "EQUAL")
    for name, (_, says) in BEGIN_APART.items():
        error = done.row(f"torch-{name}:eager")["error"]
        assert (error["verdict"], says in error["reason"]) == ("INVALID", True), (name, error)
