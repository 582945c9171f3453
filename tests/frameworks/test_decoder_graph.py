"""What a graph takes and returns as a decoder, found by the names of its inputs and outputs."""

import numpy as np
import pytest
from onnx import TensorProto, helper

from xverify.errors import Unsupported
from xverify.frameworks.onnx.decoder_graph import decoder_graph

INT, FLOAT, BOOL = TensorProto.INT64, TensorProto.FLOAT, TensorProto.BOOL
TOKENS = ("input_ids", INT, ["batch", "tokens"])
PAST = ["batch", 2, "past", 12]


def graph(inputs, outputs, kind=FLOAT):
    return helper.make_graph(
        [],
        "decoder",
        [helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(name, kind, None) for name in outputs],
    )


def found(inputs, outputs, names=("input_ids",), kind=FLOAT, cache=()):
    return decoder_graph(graph(inputs, outputs, kind), names, helper.tensor_dtype_to_np_dtype, dict(cache))


@pytest.mark.parametrize(
    ("given", "returned"),
    [
        ("past.0", "present.0"),
        ("past_key_values.0.key", "present.0.key"),
        ("past_key_values_3", "present_3"),
        ("past_key_self_1", "present_key_self_1"),
        ("k_cache_in", "k_cache_out"),
        ("cache_v_0", "new_cache_v_0"),
        ("past", "present"),
    ],
)
def test_input_and_output_of_a_tensor_of_the_cache_are_paired(given, returned):
    decoder = found([TOKENS, (given, FLOAT, PAST)], ["other.1", "logits", returned])
    assert [(each.given, each.returned, each.rows, each.places) for each in decoder.past] == [(given, returned, 0, 2)]
    assert decoder.returned == ["other.1", returned]


def test_further_inputs_the_mask_and_positions_are_told_apart():
    inputs = [
        ("ids", INT, ["N", "T"]), ("states", FLOAT, ["N", 10, 48]), ("attention_mask", INT, ["N", "A"]),
        ("position_ids", INT, ["N", "T"]), ("past.0", FLOAT, [2, "N", 4, "P", 12]), ("use_cache_branch", BOOL, [1]),
    ]  # fmt: skip
    decoder = found(inputs, ["logits", "present.0"], ("input_ids", "states"))
    assert (decoder.tokens, decoder.more, decoder.mask, decoder.positions, decoder.uses) == (
        "ids", ("states",), "attention_mask", "position_ids", "use_cache_branch",
    )  # fmt: skip
    assert (decoder.past[0].rows, decoder.past[0].places) == (1, 3)


def test_first_call_is_given_an_empty_cache_and_later_ones_the_places_after_it():
    inputs = [TOKENS, ("attention_mask", INT, ["batch", "all"]), ("position_ids", INT, ["batch", "tokens"])]
    decoder = found([*inputs, ("past.0", FLOAT, PAST), ("use_cache_branch", BOOL, [1])], ["logits", "present.0"])
    tokens = np.zeros((3, 2), np.int64)
    first = decoder.feed(tokens)
    assert first["past.0"].shape == (3, 2, 0, 12)
    assert first["attention_mask"].tolist() == [[1, 1]] * 3
    assert first["position_ids"].tolist() == [[0, 1]] * 3
    assert first["use_cache_branch"].tolist() == [False]
    cache = decoder.kept(None, [np.ones((3, 2, 5, 12), np.float32)])
    later = decoder.feed(tokens, cache)
    assert later["past.0"].shape == (3, 2, 5, 12)
    assert later["attention_mask"].shape == (3, 7)
    assert later["position_ids"].tolist() == [[5, 6]] * 3
    assert later["use_cache_branch"].tolist() == [True]


def test_keys_of_an_encoder_stay_as_the_first_call_returned_them():
    names = ["past_key_values.0.encoder.key", "past_key_values.0.decoder.key"]
    inputs = [TOKENS, *((name, FLOAT, ["batch", 2, f"past_{number}", 12]) for number, name in enumerate(names))]
    decoder = found(inputs, ["logits", "present.0.decoder.key", "present.0.encoder.key"])
    assert [each.grows for each in decoder.past] == [False, True]
    own = np.ones((1, 2, 10, 12), np.float32)
    cache = decoder.kept(None, [own, np.ones((1, 2, 3, 12), np.float32)])
    later = decoder.kept(cache, [np.zeros((0, 2, 1, 12), np.float32), np.ones((1, 2, 4, 12), np.float32)])
    assert later[names[0]] is own
    assert decoder.length(later) == 4


def test_graph_with_an_input_of_no_known_meaning_is_unsupported():
    with pytest.raises(Unsupported, match=r"takes input_ids, past\.0, beams.*such as past\.0 and present\.0"):
        found([TOKENS, ("past.0", FLOAT, PAST), ("beams", INT, ["batch"])], ["logits", "present.0"])


@pytest.mark.parametrize("shape", [["batch", 2, 16, 12], [2, 2, "past", 12], ["batch", "heads", "past_length", 12]])
def test_cache_of_a_fixed_length_or_of_an_unknown_size_is_unsupported(shape):
    with pytest.raises(Unsupported, match=r"past\.0.*open axis of tokens, and fixed sizes of all others"):
        found([TOKENS, ("past.0", FLOAT, shape)], ["logits", "present.0"])


def test_pairs_of_the_spec_come_before_names():
    inputs = [TOKENS, ("mask", FLOAT, PAST), ("v", FLOAT, PAST), ("past.0", FLOAT, PAST)]
    decoder = found(inputs, ["k_next", "logits", "present.0", "v_next"], cache={"mask": "k_next", "v": "v_next"})
    assert [(each.given, each.returned) for each in decoder.past] == [
        ("mask", "k_next"), ("v", "v_next"), ("past.0", "present.0"),
    ]  # fmt: skip
    assert (decoder.output, decoder.mask) == ("logits", "")
    with pytest.raises(Unsupported, match="name the pairs with cache="):
        found(inputs, ["k_next", "logits", "present.0", "v_next"])


def test_tensor_of_another_type_than_the_next_call_takes_is_refused():
    assert found([TOKENS, ("past.0", TensorProto.FLOAT16, PAST)], ["logits", "present.0"], kind=TensorProto.FLOAT16)
    with pytest.raises(Unsupported, match=r"present\.0 as float32, and takes it as int8 at the next call, as past\.0"):
        found([TOKENS, ("past.0", TensorProto.INT8, PAST)], ["logits", "present.0"])


@pytest.mark.parametrize(
    ("shape", "says", "unusable"),
    [
        ((3, 2, 5, 12), "", False),
        ((3, 2, 4, 12), "present.0 has shape (3, 2, 4, 12), and past.0 needs (3, 2, 5, 12)", False),
        ((3, 2, 6, 12), "present.0 has shape (3, 2, 6, 12), and past.0 needs (3, 2, 5, 12)", True),
        ((6, 2, 5, 12), "present.0 has shape (6, 2, 5, 12), and past.0 needs (3, 2, 5, 12)", True),
        ((3, 5, 12), "present.0 has shape (3, 5, 12), and past.0 needs (3, 2, 5, 12)", True),
    ],
)
def test_cache_of_another_shape_is_told(shape, says, unusable):
    decoder = found([TOKENS, ("past.0", FLOAT, PAST)], ["logits", "present.0"])
    told, broken = decoder.misshaped({"past.0": np.zeros(shape)}, 3, 5)
    assert told == (f"after 5 tokens of 3 sequences, {says}" if says else "")
    assert broken is unusable
