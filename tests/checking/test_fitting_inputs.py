"""``xverify check`` of static quantised files draws inputs in the range in which the file quantises them."""

import json

import numpy as np
import pytest
from helpers import narrowfiles as files

from xverify.checking.cases import DEVIATIONS, FITTED, make, settle
from xverify.checking.model_inputs import fitting_ranges
from xverify.framework.modelfile import Signature, Tensor

SLOW = pytest.mark.slow


def checked(xverify, folder, model, *arguments):
    """What was printed, the conversion's row, and all notes. The reference is in the folder already."""
    file = files.save(model, folder / "int8.onnx")
    done = xverify("check", file, "--against", folder / "reference.onnx", "--json", folder / "r.json", *arguments)
    result = json.loads((folder / "r.json").read_text())
    (row,) = (row for row in result["rows"] if row["task"] == "conversion")
    return done, row["error"], result["notes"]


@pytest.fixture
def folder(tmp_path):
    files.save(files.network(), tmp_path / "reference.onnx")
    return tmp_path


@pytest.mark.parametrize("how", ["QDQ", pytest.param("QOperator", marks=SLOW)])
def test_a_file_that_is_calibrated_for_small_inputs_is_equal(xverify, folder, how):
    model = files.quantised(folder, how, size=0.05)
    done, error, notes = checked(xverify, folder, model)
    assert done.code == 0, done.out + done.err
    assert error["verdict"] == "EQUAL", error["reason"]
    assert any(note.startswith("x: drawn within -0.") and "--input-range gives another" in note for note in notes)


def test_the_range_of_the_user_comes_first(xverify, folder):
    model = files.quantised(folder, "QDQ", size=0.05)
    _, error, notes = checked(xverify, folder, model, "--input-range=-4,4")
    assert error["verdict"] in ("DRIFT", "DIFFERENT")
    assert "lies outside of its range" in error["reason"]
    assert not any("drawn within" in note for note in notes)


@SLOW
def test_inputs_of_a_file_with_dynamic_ranges_stay_as_they_are(xverify, folder):
    _, error, notes = checked(xverify, folder, files.quantised(folder, "dynamic"))
    assert error["verdict"] == "EQUAL"
    assert not any("drawn within" in note for note in notes)


def test_drawn_values_are_normal_and_within_the_range():
    (x,), notes = settle([Tensor("x", (50, 50), "float32")], {}, ranges={"x": (-1.0, 3.0)})
    assert (x.low, x.high, x.kind) == (-1.0, 3.0, FITTED)
    assert notes == ["x: drawn within -1 to 3, the range in which the file quantises it; --input-range gives another"]
    kinds = ("random", "zeros", "large", "tiny", "alternating")
    drawn = dict(zip(kinds, make([x], 0, kinds).values()))
    assert all(array.min() >= -1 and array.max() <= 3 for array in drawn.values())
    assert abs(drawn["random"].mean() - 1) < 0.1
    assert drawn["random"].std() == pytest.approx(4 / DEVIATIONS, rel=0.05)
    assert not drawn["zeros"].any()
    assert np.abs(drawn["tiny"]).max() < 0.01
    assert drawn["large"].max() == 3


def test_a_range_without_zero_moves_the_zeros_into_it():
    (x,), _ = settle([Tensor("x", (4,), "float32")], {}, ranges={"x": (1.0, 2.0)})
    assert (make([x], 0, ("zeros",))["0/x"] == 1).all()


def test_of_several_files_the_narrowest_range_counts():
    tensors = [Tensor("image", (1, 4), "float32")]
    files_of = [
        (Signature([Tensor("image", (1, 4), "float32")], []), {"image": (-1.0, 4.0)}),
        (Signature([Tensor("other", (1, 4), "float32")], []), {"other": (-2.0, 3.0)}),
        (Signature([Tensor("image", (1, 4), "float32")], []), {}),
    ]
    assert fitting_ranges(tensors, files_of) == {"image": (-1.0, 3.0)}
