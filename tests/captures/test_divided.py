"""Through the command line: a model whose weights are divided among processes is joined, and judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

pytestmark = pytest.mark.slow
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(6, 8), nn.Linear(8, 5, bias=False), nn.LayerNorm(5)

    def forward(self, x):
        return self.norm(self.fc2(torch.relu(self.fc1(x))))

def build():
    torch.manual_seed(0)
    return Net().eval()
"""
# Each process has half of the rows of fc1 and half of the columns of fc2, as large models are computed.
RECORD = """
import sys
sys.modules["xverify"] = None  # an import of it is an error
import torch, net, xverify_recorder, numpy as np
from torch import nn
rank = int(sys.argv[1])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
whole, part = net.build(), slice(4 * rank, 4 * rank + 4)
class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.norm = nn.Linear(6, 4), nn.Linear(4, 5, bias=False), whole.norm
        self.fc1.weight.data, self.fc1.bias.data = whole.fc1.weight.data[part], whole.fc1.bias.data[part]
        self.fc2.weight.data = whole.fc2.weight.data[:, part].contiguous()
    def forward(self, x):
        y = self.fc2(torch.relu(self.fc1(x)))
        torch.distributed.all_reduce(y)
        return self.norm(y)
model, keep = Half().eval(), False
divided = {"fc1.weight": 0, "fc1.bias": 0, "fc1.outputs": -1, "fc2.weight": 1, "fc2.inputs": -1, "fc2.outputs": "sum"}
# here
x = np.random.default_rng(0).standard_normal((8, 6)).astype("float32")
path, settings = f"rank{rank}.safetensors", {"rank": rank, "ranks": 2, "divided": divided, "keep_weights": keep}
with xverify_recorder.Recording(path, model, **settings) as recording:
    for case in range(2):
        recording.call(x + case)
"""
FILES = ("rank1.safetensors", "rank0.safetensors")


@pytest.fixture
def recorded(tmp_path, monkeypatch, xverify):
    """A function that records the net in two processes. change: what both do before."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "net.py").write_text(NET)
    assert xverify("judge", "--recorder", "xverify_recorder.py").code == 0

    def record(change=""):
        command = (sys.executable, "-c", RECORD.replace("# here", change))
        ranks = [subprocess.Popen([*command, str(rank), folder / "store"], stderr=subprocess.PIPE) for rank in (0, 1)]
        said = [process.communicate()[1] for process in ranks]
        assert [process.returncode for process in ranks] == [0, 0], said

    return record


def judged(xverify, files=FILES, weights=("--weights", "own")):
    """(exit code, row, what was printed)"""
    words = ("--reference", "torch=net.py:build", *weights, "--json", "r.json", "--force")
    done = xverify("judge", *files, *words, timeout=300)
    row = None if done.code == 2 else json.loads(Path("r.json").read_text())["rows"][0]
    return done.code, row, done.out + done.err


def layers(row):
    found = {each["layer"]: each["verdict"] for each in row["error"]["layers"]["layers"]}
    return found["fc1"], found["fc2"], found["norm"]


def test_divided_weights_and_values_are_joined_and_judged(recorded, xverify):
    recorded()
    code, row, said = judged(xverify)
    assert (code, row["error"]["verdict"]) == (0, "EQUAL"), said
    assert layers(row) == ("EQUAL", "EQUAL", "EQUAL")
    assert "is not proven" not in said  # the digests are those of the parts of the reference's weights
    code, _, said = judged(xverify, FILES[:1])
    assert (code, len(said.splitlines())) == (2, 1), said
    assert "rank1.safetensors is rank 1 of 2" in said
    Path(FILES[0]).write_bytes(Path(FILES[0]).read_bytes()[:-60])
    code, _, said = judged(xverify)
    assert (code, len(said.splitlines())) == (2, 1), said
    assert "rank1.safetensors" in said


def test_a_fault_of_one_rank_is_found_at_its_layer(recorded, xverify):
    recorded("own = model.fc1.forward\nif rank: model.fc1.forward = lambda x: own(x) * 1.001")
    code, row, said = judged(xverify)
    assert (code, row["error"]["verdict"]) == (1, "DIFFERENT"), said
    assert layers(row) == ("DIFFERENT", "EQUAL", "EQUAL"), said


def test_other_weights_of_one_rank_are_named(recorded, xverify):
    recorded("if rank: model.fc1.bias.data += 1")
    code, row, said = judged(xverify)
    assert (code, row["error"]["verdict"]) == (1, "INVALID"), said
    assert "other weights: 1 of 5 differ, fc1.bias" in row["error"]["reason"]


def test_weights_that_the_files_keep_are_joined(recorded, xverify):
    recorded("keep = True")
    code, _, said = judged(xverify, weights=())
    assert code == 0, said


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            "torch.distributed.all_reduce = abs",
            "the tensor norm.inputs of shape (8, 5) differs between the ranks, and divided does",
        ),
        ("divided['fc2.weight'] = 2", "fc2.weight is divided along the dimension 2, and its parts have the shapes"),
        ("del divided['fc1.bias']", "have other weights: fc1.bias differs between the ranks"),
        ("divided['fc3.bias'] = 0", "divided names fc3.bias, which is no weight"),
        ("divided = {} if rank else divided", "are divided in other ways"),
    ],
)
def test_ranks_that_do_not_fit_together_end_in_one_line(recorded, xverify, change, says):
    recorded(change)
    code, _, said = judged(xverify)
    assert (code, len(said.splitlines())) == (2, 1), said
    assert says in said
