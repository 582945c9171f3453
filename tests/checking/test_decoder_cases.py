"""Input cases of the file of a decoder: its cache, its mask and its positions fit together."""

import json

import numpy as np
import pytest
from helpers.decoderfiles import changed, exported
from helpers.languagefiles import grouped

from xverify.checking.cases import make, settle
from xverify.checking.decoder_cases import misfit, widened
from xverify.framework.modelfile import Tensor

TOKENS = Tensor("input_ids", ("batch", "tokens"), "int64")
MASK = Tensor("attention_mask", ("batch", "total"), "int64")
PLACES = Tensor("position_ids", ("batch", "tokens"), "int64")
PAST = Tensor("past_key_values.0.key", ("batch", 2, "past_length", 12), "float32")
USES = Tensor("use_cache_branch", (1,), "bool")


def drawn(*tensors, **shapes):
    inputs, notes = settle(tensors, shapes, {"position_ids": 32})
    return make(inputs, 0), {each.name: each.shape for each in inputs}, notes


def test_sizes_fit_together_and_are_told():
    _, shapes, notes = drawn(TOKENS, MASK, PLACES, PAST, USES)
    assert shapes["input_ids"] == shapes["position_ids"] == (2, 8)
    assert (shapes["attention_mask"], shapes["past_key_values.0.key"]) == ((2, 16), (2, 2, 8, 12))
    assert "8 tokens in the cache (past_key_values.0.key); 8 after them" in notes[0]
    assert "use_cache_branch is true" in notes[0]


def test_positions_go_on_from_the_cache_and_leave_padding_out():
    arrays, *_ = drawn(TOKENS, MASK, PLACES, PAST, USES)
    padded = 0
    for case in range(6):
        mask, places = arrays[f"{case}/attention_mask"], arrays[f"{case}/position_ids"]
        assert np.array_equal(places, (mask.cumsum(1) - 1)[:, -8:])
        assert (np.diff(mask, axis=1) >= 0).all()
        assert mask[:, 8:].all()
        assert arrays[f"{case}/use_cache_branch"].tolist() == [True]
        padded += (mask == 0).sum()
    assert padded > 0
    assert arrays["1/attention_mask"].all()


def test_shapes_of_the_user_come_first():
    _, shapes, _ = drawn(TOKENS, MASK, PLACES, PAST, input_ids=(3, 1), **{"past_key_values.0.key": (3, 2, 5, 12)})
    assert (shapes["attention_mask"], shapes["position_ids"]) == ((3, 6), (3, 1))


def test_shape_of_any_tensor_of_the_cache_is_that_of_all():
    other = Tensor("past_key_values.0.value", ("batch", 2, "past_length", 12), "float32")
    _, shapes, _ = drawn(TOKENS, MASK, PLACES, PAST, other, **{other.name: (3, 2, 5, 12)})
    assert (shapes["past_key_values.0.key"], shapes["attention_mask"]) == ((3, 2, 5, 12), (3, 13))


def test_cache_of_eight_bits_is_one():
    _, shapes, notes = drawn(TOKENS, MASK, Tensor("past.0", ("batch", 2, "past_length", 12), "int8"))
    assert (shapes["attention_mask"], shapes["past.0"]) == ((2, 16), (2, 2, 8, 12))
    assert "8 tokens in the cache (past.0)" in notes[0]


RIGHT = {
    "input_ids": (2, 8), "attention_mask": (2, 16), "position_ids": (2, 8), "past.0": (2, 2, 8, 12), "past.1": (2, 2, 8, 12),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "shape", "says"),
    [
        ("past.1", (2, 2, 8, 12), ""),
        ("past.1", (2, 2, 5, 12), "past.1 holds 5 tokens, and past.0 8"),
        ("past.1", (1, 2, 8, 12), "past.1 has 1 rows, and input_ids 2"),
        ("attention_mask", (2, 10), "attention_mask has 10 tokens, and needs 16"),
        ("position_ids", (2, 4), "position_ids has 4 tokens, and needs 8"),
    ],
)
def test_input_that_does_not_fit_the_others_is_named(name, shape, says):
    caches = [Tensor(f"past.{number}", PAST.shape, "float32") for number in range(2)]
    found = misfit([TOKENS, MASK, PLACES, *caches], RIGHT | {name: shape})
    assert found.startswith(says)
    assert bool(found) == bool(says)


def test_a_single_token_may_follow_the_cache():
    inputs, _ = settle((TOKENS, MASK, PLACES, PAST), {}, {"position_ids": 32}, tokens=1)
    shapes = {each.name: each.shape for each in inputs}
    assert (shapes["input_ids"], shapes["attention_mask"], shapes["past_key_values.0.key"]) == (
        (2, 1),
        (2, 9),
        (2, 2, 8, 12),
    )


def test_the_size_of_a_head_that_the_nodes_tell_is_taken():
    opened = Tensor("past_key_values.0.key", ("batch", 2, "past_length", "size"), "float32")
    (found, tokens) = widened((opened, TOKENS), {"past_key_values.0.key": 12})
    assert found.shape == ("batch", 2, "past_length", 12)
    assert tokens == TOKENS


@pytest.mark.slow
@pytest.mark.parametrize(("heads", "size"), [(4, 16), (12, 8)])
def test_nodes_tell_the_size_of_a_head(tmp_path, heads, size):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("torch")
    from xverify.replay.graph.describe import widths
    from xverify.replay.graph.model import Graph

    model = onnx.load(grouped(tmp_path / "grouped.onnx", num_heads=heads))
    found = widths(Graph(model))
    assert found == dict.fromkeys(("past_key_values.0.key", "past_key_values.0.value"), size)


def test_mask_of_another_length_than_all_tokens_is_drawn_like_any_other():
    arrays, shapes, _ = drawn(TOKENS, Tensor("attention_mask", ("batch", 10), "int64"), PAST)
    assert shapes["attention_mask"] == (2, 10)
    assert (np.diff(arrays["0/attention_mask"], axis=1) <= 0).all()


@pytest.mark.parametrize("others", [(TOKENS, MASK), (MASK, PAST), (Tensor("x", ("batch", "past"), "float32"), TOKENS)])
def test_other_files_are_drawn_as_before(others):
    _, _, notes = drawn(*others)
    assert not any("decoder" in note for note in notes)


@pytest.mark.slow
def test_every_node_of_a_file_with_a_cache_is_judged(tmp_path, xverify):
    file = exported(tmp_path, "gpt2")
    ended = xverify("check", str(file), "--json", str(tmp_path / "right.json"))
    assert ended.code == 0, ended.out
    nodes = json.loads((tmp_path / "right.json").read_text())["rows"][0]["error"]["layers"]
    assert nodes["compared"] == nodes["known"] > 100
    assert "8 tokens in the cache (past.0 and 3 more)" in ended.out
    ended = xverify("check", str(changed(file, "late")), "--against", str(file))
    assert ended.code == 1
    assert "late_positions" in ended.out
