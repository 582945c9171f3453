"""``xverify check`` on files in float16: the precision is found and shown, and the verdict holds at it."""

import json

import numpy as np
import pytest
from helpers import narrowfiles as files


@pytest.fixture
def plain(tmp_path):
    return files.save(files.network(), tmp_path / "plain.onnx")


def checked(xverify, tmp_path, *arguments):
    done = xverify("check", *arguments, "--json", tmp_path / "r.json")
    assert "Traceback" not in done.err, done.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    return done, {row["task"]: row for row in rows}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        (files.half, "float16", "float16"),
        pytest.param(
            files.half_weights, "float16 weights", "float16 weights, computed in float32", marks=pytest.mark.slow
        ),
    ],
)
def test_a_right_file_is_equal_at_its_own_precision(xverify, tmp_path, plain, make, name, says):
    file = files.save(make(), tmp_path / "narrow.onnx")
    done, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert done.code == 0, done.out + done.err
    for row in rows.values():
        assert row["precision"]["says"] == says
        assert row["precision"]["name"] == name
        assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert f"EQUAL at {name}" in done.out


@pytest.mark.parametrize("make", [files.half, pytest.param(files.half_weights, marks=pytest.mark.slow)])
def test_one_weight_that_is_one_percent_off_is_not_equal_and_is_named(xverify, tmp_path, plain, make):
    model = make()
    name = next(each for each in files.constants(model) if each.startswith("w2"))
    stale = files.constants(model)[name].copy()
    stale[3, 1, 1, 1] *= np.float16(1.01)
    file = files.save(files.with_constants(model, {name: stale}), tmp_path / "stale.onnx")
    _, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert rows["conversion"]["error"]["verdict"] in ("DRIFT", "DIFFERENT")
    assert "w2[3, 1, 1, 1] is" in rows["conversion"]["error"]["reason"]


@pytest.mark.slow
def test_a_layer_whose_weights_are_one_percent_off_is_different_at_float16(xverify, tmp_path, plain):
    model = files.half()
    stale = (files.constants(model)["w3"] * np.float16(1.01)).astype(np.float16)
    file = files.save(files.with_constants(model, {"w3": stale}), tmp_path / "stale.onnx")
    done, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert done.code == 1
    assert rows["conversion"]["error"]["verdict"] == "DIFFERENT"
    assert (
        "144 of 1152 values of w3" in done.out or "values of w3 are not the reference's, rounded to float16" in done.out
    )
