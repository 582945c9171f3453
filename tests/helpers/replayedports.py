"""Captures the layers of a torch port in this process, and replays them against the reference."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from xverify.explain.replay import replay_forward
from xverify.float64.arithmetic import float64_arithmetic
from xverify.float64.layer_kinds import leaves
from xverify.float64.linear import called_by_weights, owners_of
from xverify.float64.stepping import Models
from xverify.float64.tables import perturbed_tables
from xverify.framework import capture
from xverify.replay.tensors import Capture
from xverify.results.records import Layers
from xverify.verdict.layers import summarise

MODEL = """
import math
import torch
import torch.nn.functional as F
from torch import nn
{classes}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
{constructor}

    def forward(self, x):
{body}


def build():
    return Net()
"""


def indented(text: str) -> str:
    """The lines of a method's body."""
    return "\n".join("        " + line for line in text.strip().splitlines())


def model(constructor: str, body: str, classes: str = "") -> str:
    """The text of a model file. constructor, body: the lines of ``__init__`` and of ``forward``. classes: layers that they use."""
    return MODEL.format(constructor=indented(constructor), body=indented(body), classes=classes)


def random(*sizes: int) -> torch.Tensor:
    """Standard normal values, the same ones at each call."""
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(1))


def built(path: Path, text: str) -> Any:
    """The function that builds the model of a file with this text."""
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    torch.manual_seed(0)
    return module.build


def replayed(folder: Path, reference: str, port: str, *inputs: torch.Tensor) -> Layers:
    """The layers of a port. reference, port: the texts of two model files with the same weights."""
    build = built(folder / "torch.py", reference)
    theirs, mine = built(folder / "torch_port.py", port)().eval(), build().eval()
    theirs.load_state_dict(mine.state_dict())
    recorder = capture.Recorder(folder, lambda v: v.detach().numpy() if isinstance(v, torch.Tensor) else None)
    watched = {name: [module] for name, module in leaves(theirs).items()}
    with torch.no_grad(), called_by_weights(owners_of(theirs)), capture.recording(watched, "forward", recorder):
        outputs = theirs(*(x.clone() for x in inputs))
    records = {(record.name, record.call): record for record in recorder.records}

    def build_float64() -> Any:
        with float64_arithmetic():
            return build().eval().double()

    exact = build_float64()
    exact.load_state_dict(mine.state_dict())
    models = Models(exact, mine, 0, perturbed_tables(exact, build_float64, 0))
    captured = Capture(folder, False, records, watched=frozenset(watched))
    tensors = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    named = {f"y{k}" if k else "y": y.numpy() for k, y in enumerate(tensors)}
    report = replay_forward(models, captured, inputs, named)
    return summarise(report, list(models.layers), "torch_port:eager")
