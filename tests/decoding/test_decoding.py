"""Decoders through the command line: right ones are EQUAL in every way, and every planted fault is found with step and layer."""

import re
import shutil
import sys
from pathlib import Path

import pytest
from helpers.decoders import (
    FAULTS,
    IN_TRANSFORMERS,
    LLAMA,
    SPEC,
    TRANSFORMERS,
    TRANSFORMERS_SPEC,
    checks,
    decode,
    faulty,
    folder,
)

sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
import decoders

pytestmark = pytest.mark.slow
WAYS = [
    "full pass", "full pass, alone", "steps", "steps, alone", "chunks of 5, 3, 1", "3 tokens taken back", "sequences reordered",
    "padded right", "padded left", "padded left, steps", "greedy, free",
]  # fmt: skip


def assert_right(ended, row, *more):
    assert ended.code == 0, ended.out
    found = checks(row)
    assert [name for name in (*WAYS, *more) if name not in found] == []
    assert {each["verdict"] for each in found.values()} == {"EQUAL"}
    assert found["full pass, alone"]["same_bits"] in (True, False)
    assert found["steps"]["compared"] == found["steps"]["known"] == 48
    assert row["decoding"]["not_tried"] == {}


def test_right_decoder_of_one_file_is_equal_in_every_way(tmp_path, xverify):
    ended, row = decode(xverify, folder(tmp_path / "llama"))
    assert_right(ended, row)
    assert "steps, alone" in ended.out
    assert "of which the reference chose the last 8" in ended.out


def test_right_decoder_of_transformers_is_equal_in_every_way(tmp_path, xverify):
    ended, row = decode(xverify, folder(tmp_path / "llama", TRANSFORMERS, TRANSFORMERS_SPEC))
    assert_right(ended, row, "steps, static cache")


def test_example_of_the_page_is_equal_in_every_way(tmp_path, xverify):
    page = (Path(__file__).parents[2] / "docs" / "decoding.md").read_text()
    spec, code = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    ended, row = decode(xverify, folder(tmp_path / "my_llama", code, spec))
    assert_right(ended, row, "steps, static cache")
    assert sorted(name for name in checks(row) if name not in page) == []


def assert_found(ended, row, way, place):
    assert ended.code == 1, ended.out
    wrong = {name: each for name, each in checks(row).items() if each["verdict"] in ("DIFFERENT", "INVALID")}
    assert wrong[way]["verdict"] == "DIFFERENT"
    assert wrong[way]["step"] >= 0
    assert place in wrong[way]["place"]
    assert wrong[way]["place"] in ended.out
    assert checks(row)["full pass"]["verdict"] == "EQUAL"
    assert row["error"]["verdict"] in ("DIFFERENT", "INVALID")


@pytest.mark.parametrize("name", FAULTS)
def test_fault_of_one_file_is_found_with_step_and_layer(tmp_path, xverify, name):
    *_, way, place = FAULTS[name]
    ended, row = decode(xverify, folder(tmp_path / "llama", faulty(name)))
    assert_found(ended, row, way, place)
    if "float16" in name:
        assert "the cache holds float16, and the model returns float32" in ended.out


@pytest.mark.parametrize("name", IN_TRANSFORMERS)
def test_fault_in_a_model_of_transformers_is_found_with_step_and_layer(tmp_path, xverify, name):
    lines, way, place = IN_TRANSFORMERS[name]
    code = TRANSFORMERS.replace("        #\n", f"        {lines}\n")
    ended, row = decode(xverify, folder(tmp_path / "llama", code, TRANSFORMERS_SPEC))
    assert_found(ended, row, way, place)


def test_tie_of_two_tokens_is_told_and_fails_nothing(tmp_path, xverify):
    code = LLAMA.replace(
        "self.head(self.norm(x))", "self.head(self.norm(x)); logits = torch.cat([logits, logits * 3 / 3], -1)"
    )
    code = code.replace("self.embedding(tokens)", "self.embedding(tokens % WORDS)")
    ended, row = decode(xverify, folder(tmp_path / "llama", code, SPEC.replace("16, 64", "16, 128")))
    assert ended.code == 0, ended.out
    assert any(each["token"] is not None and each["margin"] <= 10 for each in checks(row).values())
    assert "rounding decides" in ended.out


def test_ways_whose_noise_hides_a_fault_are_untested(tmp_path, xverify):
    chaos = "x = self.norm(x).sigmoid()\n        for _ in range(60):\n            x = 3.99 * x * (1 - x)"
    code = LLAMA.replace("logits = self.head(self.norm(x))", f"{chaos}\n        logits = self.head(x)")
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 4, ended.out
    assert row["error"]["verdict"] == "UNTESTED"
    assert {each["verdict"] for each in checks(row).values()} == {"UNTESTED"}
    assert "rounding is so large here that a relative error below" in ended.out


def test_model_without_mask_and_positions_is_not_padded_and_says_what_to_add(tmp_path, xverify):
    code = LLAMA.replace(", mask=None, positions=None):", "):\n        mask = positions = None")
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 0, ended.out
    assert set(row["decoding"]["not_tried"]) == {"padded right", "padded left", "padded left, steps"}
    assert "Llama.forward takes no mask and no positions: add the parameters" in ended.out


def without(parameters):
    """The Llama without some parameters of its forward."""
    names = " = ".join(each.partition("=")[0] for each in parameters.split(", "))
    code = LLAMA.replace("        n, t = tokens", f"        {names} = None\n        n, t = tokens")
    assert code != LLAMA
    assert parameters in code
    return code.replace(f", {parameters}", "")


def test_model_without_a_cache_and_a_mask_is_told_how_to_write_them(tmp_path, xverify):
    code = without("cache=None, use_cache=False, mask=None, positions=None")
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 3
    assert row["status"] == "unsupported"
    assert "Llama.forward takes tokens, and no cache" in ended.out


WHOLE = ["full pass", "full pass, alone", "full pass, 1 thread", "padded right", "padded left"]


@pytest.mark.parametrize("sees_all", [False, True])
def test_model_without_a_cache_is_computed_in_whole_passes(tmp_path, xverify, sees_all):
    code = without("cache=None, use_cache=False").replace(".tril(past)", "" if sees_all else ".tril(past)")
    ended, row = decode(xverify, folder(tmp_path / "encoder", code))
    assert ended.code == 0, ended.out
    assert list(checks(row)) == WHOLE
    assert "not tried: steps, steps, alone, chunks of 5, 3, 1" in ended.out
    assert "Llama.forward takes tokens, mask, positions, and no cache" in ended.out
    assert "the reference chose" not in ended.out


def test_padding_that_an_encoder_sees_is_found_with_step_and_layer(tmp_path, xverify):
    code = without("cache=None, use_cache=False").replace(".tril(past)", "")
    code = code.replace("            allowed = allowed & mask.bool()[:, None, None]\n", "")
    ended, row = decode(xverify, folder(tmp_path / "encoder", code))
    assert_found(ended, row, "padded right", "`blocks.0.o`")


FAMILIES = Path(__file__).parents[1] / "decoders"
# Name of a family -> (what stands in its torch.py, what stands there with a fault, the way that shows it, the place).
IN_FAMILIES = {
    "whisper": (
        "        returned =",
        "        if past_key_values is not None:\n"
        "            held = past_key_values.cross_attention_cache.layers[1]\n"
        "            held.values = held.values.roll(1, 0)\n"
        "        returned =",
        "steps",
        "layers.1.encoder_attn.out_proj",
    ),
    "mamba": ("cache_params is None or input_ids.shape[1] == 1", "True", "chunks of 5, 3, 1", "mixer.x_proj"),
}


@pytest.mark.parametrize("name", IN_FAMILIES)
def test_fault_in_a_family_is_found_with_step_and_layer(tmp_path, xverify, name):
    right, wrong, way, place = IN_FAMILIES[name]
    code = (FAMILIES / name / "torch.py").read_text()
    assert code.count(right) == 1
    spec = (FAMILIES / name / "spec.py").read_text()
    ended, row = decode(xverify, folder(tmp_path / name, code.replace(right, wrong), spec))
    assert_found(ended, row, way, place)


def test_positions_beyond_a_table_name_the_line(tmp_path, xverify):
    code = LLAMA.replace(
        "angles = positions",
        "rates = torch.ones(16, 1, dtype=x.dtype)[positions[0] + (positions[0, 0] > 12) * 9] * rates\n    angles = positions",
    )
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 1
    assert checks(row)["steps"]["verdict"] == "INVALID"
    assert "torch.py:1" in checks(row)["steps"]["says"]


# Number of a fault of tests/decoders -> the way that shows it, and its cause, for a port beside the reference.
CAUSES = {
    "llama": [
        (0, "steps", "positions began at 0 in every call"),
        (3, "steps", "the cache held keys that are not rotated"),
    ],
    "mixtral": [
        (0, "full pass", "every token went to one expert less"),
        (1, "full pass", "the weights of the chosen experts did not add up to 1"),
        (2, "full pass", "the chosen experts had each other's weights, the best one the smallest"),
    ],
    "gpt2": [(4, "sequences reordered", "the cache did not change places with the sequences")],
}


@pytest.mark.parametrize(
    ("family", "number", "way", "cause"), [(family, *each) for family, all in CAUSES.items() for each in all]
)
def test_cause_of_a_fault_of_a_port_is_named(tmp_path, xverify, family, number, way, cause):
    copy = tmp_path / family
    shutil.copytree(FAMILIES / family, copy)
    decoders.families()[family].faults[number].plant(copy)
    ended, row = decode(xverify, copy, "--subjects", "torch-port:eager")
    assert ended.code == 1, ended.out
    assert checks(row)[way]["explanation"] == f"it behaves as if {cause}"
    assert f"it behaves as if {cause}" in ended.out


def test_fault_of_a_reference_has_a_place_and_no_cause(tmp_path, xverify):
    lines, way, _ = IN_TRANSFORMERS["positions from 0 at every step"]
    code = TRANSFORMERS.replace("        #\n", f"        {lines}\n")
    ended, row = decode(xverify, folder(tmp_path / "llama", code, TRANSFORMERS_SPEC))
    assert ended.code == 1
    assert checks(row)[way]["place"]
    assert {each["explanation"] for each in checks(row).values()} == {""}
