"""Specs and options that --task decode refuses, with exit code 2."""

import pytest
from helpers.decoders import SPEC, folder


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("16, 64", "64", "its input 'tokens' has shape ('N', 16), and its output 'logits' ('N', 64)"),
        ('"int64", low=0, high=64', '"float32"', "its input 'tokens' is float32"),
        ("16", "4", "a sequence of 4 tokens is too short for --task decode: write 8 at least"),
        ("high=64)}", "high=64), 'x': TensorSpec(('N', 16))}", "its further input 'x' has shape ('N', 16)"),
        ("high=64)}", "high=64), 'x': TensorSpec((3,))}", "it needs the batch axis 'N' first"),
    ],
)
def test_spec_that_describes_no_decoder_is_refused(tmp_path, xverify, right, wrong, says):
    assert right in SPEC
    ended = xverify("run", str(folder(tmp_path / "m", spec=SPEC.replace(right, wrong))), "--task", "decode")
    assert ended.code == 2
    assert says in ended.err
    assert "spec.py" in ended.err


def test_options_of_timing_are_refused(tmp_path, xverify):
    ended = xverify("run", str(folder(tmp_path / "m")), "--task", "decode", "--rerun", "3")
    assert ended.code == 2
    assert "--task decode times nothing" in ended.err


def test_several_sizes_are_refused(tmp_path, xverify):
    ended = xverify("run", str(folder(tmp_path / "m")), "--task", "decode", "--batch", "2,3")
    assert ended.code == 2
    assert "decoding is judged at one" in ended.err
