"""ExecuTorch: right programs and subjects are EQUAL, wrong ones DIFFERENT, and what cannot be run is one line."""

import json

import pytest

pytest.importorskip("torch")

from helpers.apart import inside, needs
from helpers.conversions import plant, rows, verdict

pytestmark = [pytest.mark.slow, needs("executorch")]

SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 10))}, batch=2
)
"""

TORCH = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
"""

# A converter, and a subject, whose program has another constant or other weights than the model.
CONVERTS = """
from importlib import import_module


class Adapter(import_module("xverify.converters.{target}").Adapter):
    name = "wrong"

    @classmethod
    def lower(cls, job):
        model = job.model
        {change}
        return super().lower(job)
"""
RUNS = """
from xverify.frameworks.executorch.adapter import Adapter as Right


class Adapter(Right):
    name = "wrong"
    file = "torch"

    def function(self, model, example, backend):
        {change}
        return super().function(model, example, backend)
"""
FAULTS = {"epsilon": "model[1].eps = 1e-3", "weights": "model[5].weight.data[3, 2] += 0.01"}

# Programs that no folder of the tests has: two inputs and a mapping of outputs, an operator without a kernel, and another backend.
PROGRAMS = """
import sys
import torch
from executorch.exir import to_edge_transform_and_lower
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner


class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)

    def forward(self, x, scale):
        z = self.fc(x) * scale
        return {"scores": z, "parts": (z.softmax(-1), z.sum(1))}


torch.manual_seed(0)
two, given = Two().eval(), (torch.randn(5, 4), torch.randn(5, 3))
exported = torch.export.export(two, given)
torch.export.save(exported, "two.pt2")
open("two.pte", "wb").write(to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()]).to_executorch().buffer)
content = open("two.pte", "rb").read()
turned = torch.nn.Conv2d(3, 4, 3).eval()
image = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
exported_turned = torch.export.export(turned, (image,))
torch.export.save(exported_turned, "turned.pt2")
open("turned.pte", "wb").write(to_edge_transform_and_lower(exported_turned).to_executorch().buffer)
open("other.pte", "wb").write(content.replace(b"XnnpackBackend", b"WidgetsBackend"))
plain = to_edge_transform_and_lower(exported).to_executorch().buffer
open("lacks.pte", "wb").write(plain.replace(b"aten::_softmax", b"aten::_hardmax"))
open("cut.pte", "wb").write(plain[: len(plain) * 2 // 3])
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    for name, text in (("spec", SPEC), ("torch", TORCH)):
        (path / f"{name}.py").write_text(text)
    return path


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    path = tmp_path_factory.mktemp("programs")
    inside("executorch", path, PROGRAMS)
    return path


@pytest.mark.parametrize(
    ("more", "precision"),
    [(("--to", "executorch-portable"), "float32"), (("--quantize", "float16"), "float16")],
)
def test_what_is_converted_is_equal(folder, out, xverify, tmp_path, more, precision):
    done = xverify("convert", folder, out / "m.pte", "--weights", "probe", "--json", tmp_path / "r.json", *more)
    assert done.code == 0, done.out + done.err
    assert "to_edge_transform_and_lower of executorch" in done.out
    assert verdict(tmp_path / "r.json") in ("EQUAL", "IDENTICAL")
    assert precision in rows(tmp_path / "r.json")["conversion"]["precision"]["says"]
    assert [each.name for each in out.iterdir()] == ["m.pte"]


@pytest.mark.parametrize(
    ("fault", "target", "says"),
    [
        ("epsilon", "executorch-portable", "first differs at layer 1 (BatchNorm2d)"),
        ("weights", "executorch-portable", "first differs at layer 5 (Linear)"),
        ("weights", "executorch", ""),  # XNNPACK computes all in one part, whose values are not shown
    ],
)
def test_a_program_of_another_model_is_different(folder, out, xverify, tmp_path, monkeypatch, fault, target, says):
    plant(tmp_path, monkeypatch, "wrong", CONVERTS.format(target=target, change=FAULTS[fault]))
    done = xverify(
        *("convert", folder, out / "m.pte", "--to", "wrong", "--weights", "probe", "--json", tmp_path / "r.json"),
        process=True,  # the names of converters are looked up once
    )
    assert done.code == 1, done.out + done.err
    assert verdict(tmp_path / "r.json") == "DIFFERENT"
    if says:
        done = xverify("check", out / "m.pte", "--against", folder, "--weights", "probe")
        assert done.code == 1, done.out + done.err
        assert says in done.out


def test_subjects_are_timed_and_judged_and_a_wrong_one_is_different(xverify, folder, tmp_path):
    place = tmp_path / "frameworks"
    place.mkdir()
    (place / "wrong.py").write_text(RUNS.format(change=FAULTS["epsilon"]))
    subjects = "torch:eager,executorch:xnnpack,executorch:portable,wrong:xnnpack"
    done = xverify("run", folder, "--subjects", subjects, "--warmup", 1, "--rerun", 4, frameworks=place, timeout=900)
    assert done.code == 1, done.out + done.err
    for subject in ("executorch:xnnpack", "executorch:portable"):
        row = done.row(subject)
        assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        assert row["weights_digest"] == done.result["weights"]["digest"]
        assert row["speed"]["fps"] > 0
        assert row["environment"]["executorch"]
    assert done.row("wrong:xnnpack")["error"]["verdict"] == "DIFFERENT"


def test_a_program_is_compared_with_the_export_that_it_was_made_of(programs, xverify, tmp_path):
    """Two inputs, and outputs whose names are those of the mapping that the model returns."""
    done = xverify("check", programs / "two.pte", "--against", programs / "two.pt2", "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    row = rows(tmp_path / "r.json")["conversion"]
    assert row["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert {each["output"] for each in row["error"]["tensors"]} == {"scores", "parts.0", "parts.1"}
    assert "XnnpackBackend computes" in done.out


def test_a_program_whose_inputs_have_their_channels_last_in_memory_is_equal(programs, xverify, tmp_path):
    done = xverify("check", programs / "turned.pte", "--against", programs / "turned.pt2")
    assert done.code == 0, done.out + done.err
    assert "EQUAL" in done.out.splitlines()[-1]


def test_a_program_alone_is_computed_and_tells_what_computes_it(programs, xverify, tmp_path):
    done = xverify("check", programs / "two.pte", "--json", tmp_path / "r.json")
    assert done.code == 4, done.out + done.err
    assert "name a reference with --against" in done.out
    notes = json.loads((tmp_path / "r.json").read_text())["notes"]
    assert any("XnnpackBackend computes" in note and "FullyConnected (1)" in note for note in notes)
    assert any("kernels compute aten::sum" in note for note in notes)


def test_what_cannot_be_run_is_one_line_each(programs, folder, xverify):
    done = xverify("check", programs / "cut.pte")
    assert done.code == 2
    assert "cut.pte: this ExecuTorch program (.pte) is truncated: it has" in done.err
    for name, says in (
        ("lacks.pte", "no kernel of this ExecuTorch computes aten::_hardmax.out"),
        ("other.pte", "it was made for WidgetsBackend, and this ExecuTorch has"),
    ):
        done = xverify("check", programs / name)
        assert done.code == 3, done.out + done.err
        assert says in done.out
    done = xverify("check", programs / "two.pte", "--against", folder)
    assert done.code in (2, 3), done.out + done.err
    assert "in the reference" in done.out + done.err or "input" in done.out + done.err
