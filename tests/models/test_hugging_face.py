"""Models of transformers, diffusers and torchvision as references, from the command line."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest
from helpers.marks import with_long

sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
import ports

pytestmark = pytest.mark.slow

# Folder in tests/ports -> the library that makes its reference.
LIBRARIES = {
    "bert": "transformers",
    "llama": "transformers",
    "whisper_encoder": "transformers",
    "diffusion_unet": "diffusers",
}
FLAGS = ("--warmup", 1, "--rerun", 1, "--cases", 2)

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"image": TensorSpec(("N", 3, 64, 64), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 10))},
)
"""

TORCH = """
import torchvision


def build():
    return torchvision.models.squeezenet1_1(weights=None, num_classes=10)
"""


def skip_without(library):
    """Skip a test. The library is not imported: torchvision beside another build of torch needs what xverify declares."""
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")


def assert_equal(done, subjects):
    """Assert that every row is equal. Returns subject -> the layers of which a call was not captured."""
    assert done.code == 0, done.out + done.err
    errors = {subject: done.row(subject)["error"] for subject in subjects}
    assert {error["verdict"] for error in errors.values()} <= {"IDENTICAL", "EQUAL"}, done.out
    assert all(layers["compared"] > 15 for layers in (error["layers"] for error in errors.values())), done.out
    return {subject: set(error["layers"]["missing"] + error["layers"]["partial"]) for subject, error in errors.items()}


@pytest.mark.parametrize("name", with_long(LIBRARIES, "llama", "whisper_encoder"))
def test_a_model_of_a_library_is_the_reference_of_its_export_and_of_a_keras_port(xverify, name):
    skip_without(LIBRARIES[name])
    subjects = ["torch:eager", "onnxruntime", "tensorflow:graph"]
    done = xverify("run", ports.PORTS / name, "--subjects", ",".join(subjects), *FLAGS, timeout=600)
    missing = assert_equal(done, subjects)
    assert missing["torch:eager"] == set()
    # An export may compute once what the model computes in several calls of an activation.
    assert missing["onnxruntime"] | missing["tensorflow:graph"] <= set(ports.Port.read(ports.PORTS / name).glue)


def test_a_fault_in_a_port_of_a_library_s_model_is_different(xverify, tmp_path):
    skip_without("transformers")
    port = ports.Port.read(ports.PORTS / "llama")
    folder = Path(shutil.copytree(port.folder, tmp_path / "llama"))
    port.faults[0].plant(folder)
    done = xverify("run", folder, "--subjects", "tensorflow:graph", *FLAGS, timeout=600)
    assert done.code == 1
    error = done.row("tensorflow:graph")["error"]
    assert error["verdict"] == "DIFFERENT"
    assert "model.layers.0.self_attn.o_proj" in error["reason"]


def test_a_model_of_torchvision_is_the_reference_of_its_export(xverify, tmp_path):
    skip_without("torchvision")
    (tmp_path / "spec.py").write_text(SPEC)
    (tmp_path / "torch.py").write_text(TORCH)
    subjects = ["torch:eager", "onnxruntime"]
    done = xverify("run", tmp_path, "--subjects", ",".join(subjects), *FLAGS, timeout=600)
    assert assert_equal(done, subjects) == {"torch:eager": set(), "onnxruntime": set()}


PRETRAINED = """
from transformers import LlamaModel


def build():
    return LlamaModel.from_pretrained(FOLDER, use_cache=False)
"""
PRETRAINED_SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=2,
    inputs={"ids": TensorSpec(("N", 7), dtype="int64", low=0, high=40)},
    outputs={"last_hidden_state": TensorSpec(("N", 7, 16))},
)
"""


def test_the_layers_of_a_model_that_build_reads_from_files_are_judged(xverify, tmp_path):
    skip_without("transformers")
    import torch

    from xverify.frameworks.torch.torchvision import declare_torchvision_ops

    declare_torchvision_ops(torch)
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=40, hidden_size=16, intermediate_size=24, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    LlamaModel(config).save_pretrained(tmp_path / "checkpoint")
    folder = tmp_path / "port"
    folder.mkdir()
    (folder / "spec.py").write_text(PRETRAINED_SPEC)
    (folder / "torch.py").write_text(PRETRAINED.replace("FOLDER", repr(str(tmp_path / "checkpoint"))))
    done = xverify("run", folder, "--subjects", "torch:eager", *FLAGS, timeout=600)
    assert done.code == 4, done.out + done.err  # it is the reference alone
    assert done.result["reference"]["replay_problem"] == ""
    layers = done.row("torch:eager")["error"]["layers"]
    assert layers["compared"] == layers["known"] > 8
