"""GGUF files as weights of models of Hugging Face, and as files in float32."""

import numpy as np
import pytest
from helpers.languagemodels import HEADS, KV_HEADS, gguf_names, llama, running, write_gguf

from xverify.errors import WeightsError
from xverify.weights import gguf, gguf_model

WEIGHTS = llama()
FACTS = {"architecture": "llama", "heads": HEADS, "kv_heads": KV_HEADS}


def test_weights_have_the_names_and_the_order_of_hugging_face():
    found = gguf_model.hugging_face(gguf_names(WEIGHTS), FACTS)
    assert set(found) == set(WEIGHTS)
    for name, array in WEIGHTS.items():
        assert found.shape(name) == array.shape
        assert np.array_equal(found[name], array), name


def test_rows_that_were_not_reordered_are_in_another_order():
    found = gguf_model.hugging_face(gguf_names(WEIGHTS, rotate=False), FACTS)
    wrong = [name for name in WEIGHTS if not np.array_equal(found[name], WEIGHTS[name])]
    assert {name.split(".")[-2] for name in wrong} == {"q_proj", "k_proj"}


def test_norms_of_gemma_are_without_their_one_and_layers_have_four():
    names = ("attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
    arrays = {f"blk.0.{name}.weight": np.full(4, 1.5, np.float32) for name in names}
    found = gguf_model.hugging_face(arrays, {"architecture": "gemma2"})
    assert sorted(found) == [
        f"model.layers.0.{name}_layernorm.weight"
        for name in ("input", "post_attention", "post_feedforward", "pre_feedforward")
    ]
    assert all(np.array_equal(found[name], np.full(4, 0.5, np.float32)) for name in found)


@pytest.mark.parametrize(
    ("arrays", "facts", "says"),
    [
        ({"output.weight": np.ones(2)}, {"architecture": "rwkv"}, "architecture 'rwkv' of the GGUF file is not known here"),
        ({"blk.0.ssm_a.weight": np.ones(2)}, FACTS, "blk.0.ssm_a.weight of the GGUF file has no name"),
        ({"blk.0.attn_q.weight": np.ones((6, 2))}, FACTS, "has 6 rows, which are not those of 4 heads"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_one_clear_line(arrays, facts, says):
    with pytest.raises(WeightsError, match=says):
        dict(gguf_model.hugging_face(arrays, facts))


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0", "Q6_K"])
def test_file_in_float32_has_the_same_values_and_metadata(tmp_path, kind):
    path = write_gguf(tmp_path / "model.gguf", gguf_names(WEIGHTS), kind, settings=running())
    before = gguf.Tensors(path)
    made = gguf_model.in_float32(before, path, tmp_path / "plain.gguf")
    after = gguf.Tensors(made)
    assert set(after.types.values()) == {"F32"}
    assert list(after) == list(before)
    assert after.facts == before.facts == FACTS
    assert all(np.array_equal(after[name], before[name]) for name in before)
    assert made.read_bytes()[: after.first] == path.read_bytes()[: before.first]


def test_file_that_is_in_float32_is_taken_as_it_is(tmp_path):
    path = write_gguf(tmp_path / "model.gguf", gguf_names(WEIGHTS), settings=running())
    assert gguf_model.in_float32(gguf.Tensors(path), path, tmp_path / "plain.gguf") == path
