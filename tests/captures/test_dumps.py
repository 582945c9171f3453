"""Through the command line: what other tools recorded of a model is judged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

pytestmark = pytest.mark.slow
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.norm, self.head = nn.Embedding(31, 16), nn.LayerNorm(16), nn.Linear(16, 31)
        self.inner = nn.Sequential(nn.Linear(16, 24), nn.GELU())
        self.back = nn.Linear(24, 16)

    def forward(self, tokens, scale=None):
        x = self.embedding(tokens)
        x = x + self.back(self.inner(self.norm(x)))
        return {"logits": self.head(self.norm(x)) * (1.0 if scale is None else scale)}

def build():
    torch.manual_seed(0)
    return Net().eval()
"""
DUMP = """
import sys, torch, net
sys.path.append({root!r})
from xverify.frameworks.torch.torchvision import declare_torchvision_ops
declare_torchvision_ops(torch)
from transformers.model_debugging_utils import model_addition_debugger_context
model = net.build()
{change}
tokens = torch.arange(24).reshape(2, 12)
with model_addition_debugger_context(model, debug_path="dump", do_prune_layers=False, use_repr={text}):
    model.forward(tokens, scale=torch.tensor([2.0]))
"""
TREE = "dump/Net_debug_tree_FULL_TENSORS.json"
REFERENCE = ("--reference", "torch=net.py:build", "--weights", "own")


@pytest.fixture
def here(tmp_path, monkeypatch):
    folder = tmp_path / "here"  # where commands are run
    folder.mkdir()
    monkeypatch.chdir(folder)
    (folder / "net.py").write_text(NET)
    return folder


def dumped(here, change="", text=False):
    """Record the net with transformers' debugger."""
    from xverify import __file__ as package

    shutil.rmtree(here / "dump", ignore_errors=True)
    code = DUMP.format(root=package.rpartition("/xverify/")[0], change=change, text=text)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=here)
    assert done.returncode == 0, done.stderr[-2000:]


def judged(xverify, file):
    """(exit code, error of the row, what was printed)"""
    done = xverify("judge", file, *REFERENCE, "--json", "r.json", "--force", timeout=300)
    return done.code, json.loads(Path("r.json").read_text())["rows"][0]["error"], done.out + done.err


def test_a_dump_of_the_debugger_of_transformers_is_judged_by_layer(here, xverify):
    dumped(here)
    code, error, said = judged(xverify, TREE)
    assert (code, error["verdict"]) == (0, "IDENTICAL"), said
    assert {each["layer"] for each in error["layers"]["layers"]} >= {"embedding", "inner.0", "inner.1", "back", "head"}
    assert "1 layers were called more than once and are left out, such as Net.norm" in said
    assert "the capture has no weights" in said

    dumped(here, "own = model.inner[1].forward; model.inner[1].forward = lambda x: own(x) * 1.001")
    code, error, said = judged(xverify, TREE)
    assert (code, error["verdict"]) == (1, "DIFFERENT"), said
    assert error["reason"].startswith("inner.1: its result is 1.001 times the reference's"), error["reason"]


def test_a_dump_without_whole_tensors_or_with_a_tensor_missing_ends_in_one_line(here, xverify):
    dumped(here, text=True)
    done = xverify("judge", TREE, *REFERENCE)
    assert done.code == 2, done.out + done.err
    assert "record it again with use_repr=False" in done.err
    dumped(here)
    (here / "dump" / "Net.back_outputs.safetensors").unlink()
    done = xverify("judge", TREE, *REFERENCE)
    assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
    assert "Net.back_outputs.safetensors" in done.err


def test_golden_logits_are_judged(here, xverify):
    import torch

    namespace: dict = {}
    exec(NET, namespace)
    model, prompts = namespace["build"](), ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10])

    def write(factor):
        with torch.inference_mode():
            logits = [model(torch.tensor([each]))["logits"][0].numpy() * np.float32(factor) for each in prompts]
        lines = [{"prompt": "", "tokens": each, "logits": found.tolist()} for each, found in zip(prompts, logits)]
        (here / "golden.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")

    write(1.0)
    code, error, said = judged(xverify, "golden.jsonl")
    assert (code, error["verdict"]) == (0, "IDENTICAL"), said
    assert "calls 2" in said  # another length
    write(1.001)
    code, error, said = judged(xverify, "golden.jsonl")
    assert (code, error["verdict"]) == (1, "DIFFERENT"), said

    for text, says in {
        '{"tokens": [1, 2]}\n': "line 1 lacks logits",
        '{"tokens": [1, 2], "logits": [[1.0]]}\n': "line 1 has tokens [2] and logits [1, 1]",
        '{"tokens": [1': "not as MaxText's golden logits",
        "": "it has no line",
    }.items():
        (here / "golden.jsonl").write_text(text)
        done = xverify("judge", "golden.jsonl", *REFERENCE)
        assert (done.code, len(done.err.splitlines())) == (2, 1), done.err
        assert says in done.err
