"""Ports of models with weight norms and spectral norms, by the command line."""

import importlib.util
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
import ports

pytestmark = pytest.mark.slow
FLAGS = ("--warmup", 1, "--rerun", 1, "--cases", 2, "--details")
NAMES = ("weight_norm_decoder", "spectral_norm_critic")
FOLDED = {
    "weight_norm_decoder": [
        "pre",
        "up",
        "blocks.0.conv1",
        "blocks.0.conv2",
        "blocks.1.conv1",
        "blocks.1.conv2",
        "post",
    ],
    "spectral_norm_critic": ["fc1", "fc2", "fc3"],
}

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=6, task="classification", inputs={"x": TensorSpec(("N", 9))}, outputs={"logits": TensorSpec(("N", 5))}
)
"""
TORCH = """
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm, weight_norm


def build():
    return nn.Sequential(
        weight_norm(nn.Linear(9, 14)), nn.ReLU(), nn.utils.weight_norm(nn.Linear(14, 12)), nn.ReLU(), nn.Linear(12, 5)
    )
"""


def installed(*names):
    return [name for name in names if importlib.util.find_spec(name)]


@pytest.mark.parametrize("name", NAMES)
def test_a_port_with_computed_weights_is_proven_to_have_them(xverify, name):
    frameworks = installed("tensorflow", "jittor")
    subjects = [
        "torch:eager",
        "onnxruntime",
        *({"jittor": "jittor"}.get(each, ports.MODES[each]) for each in frameworks),
    ]
    done = xverify("run", ports.PORTS / name, "--subjects", ",".join(subjects), *FLAGS, timeout=600)
    assert done.code == 0, done.out + done.err
    for subject in subjects:
        error = done.row(subject)["error"]
        layers = error["layers"]
        assert error["verdict"] in ("IDENTICAL", "EQUAL"), (subject, error)
        assert (layers["compared"], layers["missing"]) == (layers["known"], []), (subject, layers)
    weights = done.result["weights"]
    assert f"read back equal from {len(subjects)} of {len(subjects)} subjects" in " ".join(done.out.split())
    if "tensorflow" in frameworks:
        subject = ports.MODES["tensorflow"]
        assert weights["folded"][subject] == [f"{layer}.weight" for layer in FOLDED[name]]
        assert weights["folded_digests"][subject] == done.row(subject)["weights_digest"] != weights["digest"]
        assert f"Folded: {subject} holds {len(FOLDED[name])} weights as the reference computes them" in done.out
    assert done.row("torch:eager")["weights_digest"] == weights["digest"]


@pytest.mark.parametrize("name", NAMES)
def test_without_its_entry_the_error_says_how_to_declare_a_computed_weight(xverify, tmp_path, name):
    pytest.importorskip("tensorflow")
    folder = Path(shutil.copytree(ports.PORTS / name, tmp_path / name))
    (folder / "names.toml").unlink()
    done = xverify("run", folder, "--subjects", "torch:eager,tensorflow:graph", *FLAGS, timeout=600)
    assert done.code == 3, done.out + done.err
    reason = done.row("tensorflow:graph")["reason"]
    first = FOLDED[name][0]
    assert reason.startswith(
        f"tensorflow.py has {first}.weight, which the reference computes from {first}.parametrizations"
    )
    listed = re.search(r"write folded = \[(.*)\] under \[tensorflow\] in names.toml", reason)[1]
    assert listed.startswith(f'"{first}", ')


def test_a_layer_that_is_not_computed_cannot_be_folded(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    folder = Path(shutil.copytree(ports.PORTS / "spectral_norm_critic", tmp_path / "critic"))
    names = folder / "names.toml"
    names.write_text(names.read_text().replace('["fc1", "fc2", "fc3"]', '["fc1", "fc2", "fc3", "heads"]'))
    done = xverify("run", folder, "--subjects", "tensorflow:graph", *FLAGS, timeout=600)
    assert done.code == 3, done.out + done.err
    assert (
        "lists 'heads' as folded, and the reference computes no weight of it" in done.row("tensorflow:graph")["reason"]
    )


def trained(xverify, folder, torch, subjects="torch:eager"):
    folder.mkdir()
    for name, text in (("spec", SPEC), ("torch", torch)):
        (folder / f"{name}.py").write_text(text)
    return xverify("run", folder, "--task", "train", "--subjects", subjects, "--warmup", 1, "--rerun", 2, timeout=600)


def test_a_weight_norm_is_trained_with_what_it_is_computed_from(xverify, tmp_path):
    done = trained(xverify, tmp_path / "normed", TORCH)
    assert done.code == 4, done.out + done.err  # it is the reference alone
    row = done.row("torch:eager")
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    checks = row["training"]["checks"]
    assert {check["verdict"] for check in checks} <= {"IDENTICAL", "EQUAL"}, checks
    assert next(check for check in checks if check["name"] == "gradients")["compared"] == 8
    assert all(check["compared"] == check["known"] == 5 for check in checks if check["name"] == "forward")


@pytest.mark.parametrize("older", [False, True])
def test_in_training_the_vectors_of_a_spectral_norm_are_said_not_to_be_compared(xverify, tmp_path, older):
    torch = TORCH.replace("weight_norm(nn.Linear(9", "spectral_norm(nn.Linear(9")
    if older:
        torch = torch.replace("spectral_norm(nn.Linear(9", "nn.utils.spectral_norm(nn.Linear(9")
    done = trained(xverify, tmp_path / "spectral", torch)
    assert done.code == 4, done.out + done.err  # it is the reference alone
    row = done.row("torch:eager")
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    checks = row["training"]["checks"]
    untested = [check for check in checks if check["verdict"] == "UNTESTED"]
    assert [check["name"] for check in untested] == ["statistics"]
    vector = "0.weight_u" if older else "0.parametrizations.weight.0._u"
    assert untested[0]["says"].startswith(
        f"what a step makes of the vectors of spectral norms ({vector}, 2 in all) is not"
    )
    assert "is not compared" in " ".join(done.out.split())
    assert {check["verdict"] for check in checks if check not in untested} <= {"IDENTICAL", "EQUAL"}, checks


def test_a_folded_port_cannot_be_trained(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    spec = ports.PORTS / "spectral_norm_critic" / "spec.py"
    folder = Path(shutil.copytree(spec.parent, tmp_path / "critic"))
    arguments = ("--task", "train", "--subjects", "torch:eager,tensorflow:graph", "--warmup", 1, "--rerun", 1)
    done = xverify("run", folder, *arguments, timeout=600)
    row = done.row("tensorflow:graph")
    assert row["status"] == "unsupported", done.out + done.err
    assert "and training changes what the reference computes it from: compare inference" in row["reason"]
