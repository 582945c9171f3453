"""GGUF files as subjects through the command line: right ones are EQUAL in every way, and planted faults are found."""

import json

import pytest
from helpers.decoders import checks
from helpers.languagemodels import gguf_names, llama, running, write_gguf
from safetensors.numpy import save_file

from xverify.environments import store
from xverify.framework import discovery

ADAPTER = discovery.load("llamacpp")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(store.chosen(ADAPTER) is None, reason=f"llama.cpp is absent: {store.remedy(ADAPTER)}"),
]
SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"input_ids": TensorSpec(("N", 16), "int64", low=0, high=96)},
    outputs={"logits": TensorSpec(("N", 16, 96))},
    task="language-model",
    batch=2,
)
"""
CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


def build():
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96, hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, rms_norm_eps=1e-6, use_cache=False,
        )
    )
"""
WEIGHTS = llama()


@pytest.fixture
def folder(tmp_path):
    """A model folder, beside its weights as model.safetensors."""
    made = tmp_path / "llama"
    made.mkdir()
    (made / "spec.py").write_text(SPEC)
    (made / "torch.py").write_text(CODE)
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    return made


def decode(xverify, folder, file, weights):
    """(how the command ended, the row of the file). weights: the name of the file with those of the run."""
    result = folder.parent / "result.json"
    ended = xverify(
        "run", str(folder), "--task", "decode", "--subjects", f"gguf={file}", "--weights", str(folder.parent / weights),
        "--json", str(result),
    )  # fmt: skip
    return ended, json.loads(result.read_text())["rows"][0]


@pytest.mark.parametrize("kind", ["F32", "F16", "Q8_0", "Q4_0", "Q4_K", "Q6_K"])
def test_right_file_of_every_type_is_equal_in_every_way(folder, xverify, kind):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS), kind, settings=running())
    ended, row = decode(xverify, folder, file, "model.gguf")
    assert ended.code == 0, ended.out
    found = checks(row)
    assert {each["verdict"] for each in found.values()} == {"EQUAL"}
    assert {"steps", "3 tokens taken back", "sequences reordered", "padded left, steps", "greedy, free"} <= set(found)
    untried = row["decoding"]["not_tried"]
    assert list(untried) == ([] if kind == "F32" else [f"products with {kind}"])
    assert kind == "F32" or f"llama.cpp is given the matrices in {kind} in float32" in ended.out


def test_file_in_float32_has_the_weights_of_the_model(folder, xverify):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS), settings=running())
    ended, row = decode(xverify, folder, file, "model.safetensors")
    assert ended.code == 0, ended.out
    assert row["error"]["verdict"] == "EQUAL"


@pytest.mark.parametrize("settings", [running(base=20000.0), running(epsilon=1e-4)], ids=["base", "epsilon"])
def test_wrong_metadata_are_found_at_the_first_step(folder, xverify, settings):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS), "Q8_0", settings=settings)
    ended, row = decode(xverify, folder, file, "model.gguf")
    assert ended.code == 1, ended.out
    found = checks(row)
    assert {found[name]["verdict"] for name in ("full pass", "steps")} == {"DIFFERENT"}
    assert found["steps"]["step"] <= 1  # a rotation by no place is right with every base


def replaced(name, other):
    """The weights of a file in which one has other values. other: makes them of all weights."""
    arrays = gguf_names(WEIGHTS)
    return {**arrays, name: other(arrays)}


TENSORS = {
    "q is not reordered": (gguf_names(WEIGHTS, rotate=False), "model.layers.0.self_attn.q_proj.weight"),
    "the tensor of another layer": (
        replaced("blk.1.ffn_up.weight", lambda arrays: arrays["blk.0.ffn_up.weight"]),
        "model.layers.1.mlp.up_proj.weight",
    ),
    "a norm with one more": (
        replaced("blk.1.ffn_norm.weight", lambda arrays: arrays["blk.1.ffn_norm.weight"] + 1),
        "model.layers.1.post_attention_layernorm.weight",
    ),
}


@pytest.mark.parametrize("fault", TENSORS)
def test_wrong_tensor_is_named(folder, xverify, fault):
    arrays, name = TENSORS[fault]
    file = write_gguf(folder.parent / "model.gguf", arrays, settings=running())
    ended, row = decode(xverify, folder, file, "model.safetensors")
    assert ended.code == 3, ended.out
    assert row["status"] == "failed"
    assert name in row["reason"]
    assert "xverify weights diff model.gguf FILE says whether each is right" in row["reason"]


def test_quantised_file_with_the_weights_of_the_model_asks_for_its_own(folder, xverify):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS), "Q4_0", settings=running())
    ended, row = decode(xverify, folder, file, "model.safetensors")
    assert ended.code == 3, ended.out
    assert "--weights model.gguf judges what is computed with them" in row["reason"]


def test_file_without_what_llama_cpp_needs_is_told_in_its_words(folder, xverify):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS))
    ended, row = decode(xverify, folder, file, "model.safetensors")
    assert ended.code == 3, ended.out
    assert "cannot load model.gguf" in row["reason"]
    assert "key not found in model" in row["reason"]


def test_architecture_whose_gelu_is_rounded_to_float16_is_unsupported(folder, xverify):
    file = write_gguf(folder.parent / "model.gguf", gguf_names(WEIGHTS), architecture="gemma2", settings=running())
    ended, row = decode(xverify, folder, file, "model.safetensors")
    assert ended.code == 3, ended.out
    assert row["status"] == "unsupported"
    assert "llama.cpp looks up GELU, which gemma2 has, in a table in float16" in row["reason"]
