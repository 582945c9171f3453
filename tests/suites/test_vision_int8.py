"""How the suite of int8 files reads an answer."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
from helpers.sampleresults import RESULT
from vision_int8 import judged

from xverify.results.verdicts import Verdict

pytestmark = pytest.mark.slow


def rows(verdict, ratio=None):
    """The row of a runtime that is right, and one of a conversion. ratio: residual / noise floor of its output."""
    row = next(each for each in RESULT.rows if each.error is not None and each.error.tensors)
    tensors = tuple(replace(each, noise_ratio=ratio) for each in row.error.tensors)
    made = replace(row, task="conversion", error=replace(row.error, verdict=verdict, tensors=tensors))
    return [replace(made, task="runtime", error=replace(made.error, verdict=Verdict.EQUAL)), made]


@pytest.mark.parametrize(
    ("verdict", "ratio", "word"),
    [
        (Verdict.EQUAL, 1.0, "EQUAL"),
        (Verdict.DRIFT, 4.0, "DRIFT"),
        (Verdict.UNTESTED, 1.0, "coarse"),
        (Verdict.UNTESTED, 3.1, "wrong"),
        (Verdict.UNTESTED, None, "wrong"),
        (Verdict.DIFFERENT, 1.0, "wrong"),
        (Verdict.INVALID, 1.0, "wrong"),
    ],
)
def test_an_answer_is_right_coarse_or_wrong(verdict, ratio, word):
    assert judged("resnet18", "static", rows(verdict, ratio), 1.0).word == word


def test_a_file_that_could_not_be_computed_is_wrong():
    runtime, conversion = rows(Verdict.EQUAL)
    failed = replace(conversion, error=None, status="failed", reason="no memory")
    found = judged("resnet18", "static", [runtime, failed], 1.0)
    assert (found.word, found.reason) == ("wrong", "no memory")
