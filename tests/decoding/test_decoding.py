"""Decoders through the command line: right ones are EQUAL in every way, and every planted fault is found with step and layer."""

import re
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


def test_model_without_a_cache_is_told_how_to_write_one(tmp_path, xverify):
    code = LLAMA.replace("cache=None, use_cache=False, ", "").replace(
        "        n, t =", "        cache = use_cache = None\n        n, t =", 2
    )
    code = code.replace("        cache = use_cache = None\n        n, t, _", "        n, t, _")
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 3
    assert row["status"] == "unsupported"
    assert "Llama.forward takes tokens, mask, positions, and no cache" in ended.out


def test_positions_beyond_a_table_name_the_line(tmp_path, xverify):
    code = LLAMA.replace(
        "angles = positions",
        "rates = torch.ones(16, 1, dtype=x.dtype)[positions[0] + (positions[0, 0] > 12) * 9] * rates\n    angles = positions",
    )
    ended, row = decode(xverify, folder(tmp_path / "llama", code))
    assert ended.code == 1
    assert checks(row)["steps"]["verdict"] == "INVALID"
    assert "torch.py:1" in checks(row)["steps"]["says"]
