"""``xverify check`` on quantised files: the error of the kernels, that of the quantisation, and the layers by what they cost."""

import json
import re

import pytest
from helpers import narrowfiles as files

SAYS = {
    "dynamic": "int8 dynamic, per tensor, weights and uint8 activations",
    "QDQ": "int8 static, per tensor, weights and int8 activations",
    "QOperator": "int8 static, per tensor, weights and int8 activations",
}


@pytest.fixture
def plain(tmp_path):
    return files.save(files.network(), tmp_path / "reference.onnx")


def checked(xverify, tmp_path, *arguments):
    done = xverify("check", *arguments, "--json", tmp_path / "r.json")
    assert "Traceback" not in done.err, done.err
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    return done, {row["task"]: row for row in rows}


SLOW = pytest.mark.slow


@pytest.mark.parametrize("how", [pytest.param("dynamic", marks=SLOW), "QDQ", pytest.param("QOperator", marks=SLOW)])
def test_a_right_file_is_equal_at_int8_and_both_errors_are_told_apart(xverify, tmp_path, plain, how):
    file = files.save(files.quantised(tmp_path, how), tmp_path / f"{how}-int8.onnx")
    done, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert done.code == 0, done.out + done.err
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert rows["conversion"]["error"]["verdict"] == "EQUAL"
    assert rows["conversion"]["precision"]["says"] == SAYS[how]
    found = rows["conversion"]["quantisation"]
    assert found["error"]["scores"]["sqnr"] > 20
    assert found["kernel"]["scores"]["sqnr"] > found["error"]["scores"]["sqnr"] + 10
    assert {layer["layer"] for layer in found["layers"]} >= {
        "/conv1/Conv",
        files.CONVOLUTION,
        "/conv3/Conv",
        files.LAYER,
    }
    costs = [layer["cost"] for layer in found["layers"]]
    assert costs == sorted(costs, reverse=True)
    assert sum(layer["share"] for layer in found["layers"]) == pytest.approx(1)
    assert "error of the quantisation at the outputs" in done.out


@pytest.mark.parametrize(
    ("how", "per_channel"),
    [
        ("dynamic", False),
        *(pytest.param(*each, marks=SLOW) for each in (("QDQ", False), ("QDQ", True), ("QOperator", False))),
    ],
)
def test_a_layer_with_a_scale_that_is_20_times_too_large_is_ranked_first(xverify, tmp_path, plain, how, per_channel):
    model = files.quantised(tmp_path, how, per_channel)
    file = files.save(files.coarse(model, "w2", 20), tmp_path / "coarse.onnx")
    done, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert done.code == 0
    assert "PASS, 1 warning" in done.out
    first = rows["conversion"]["quantisation"]["layers"][0]
    assert (first["layer"], first["module"]) == (files.CONVOLUTION, "block.0.conv2")
    assert first["share"] > 0.5
    assert first["coarse"] > 15
    assert rows["conversion"]["error"]["verdict"] == "DRIFT"
    reason = rows["conversion"]["error"]["reason"]
    assert re.search(
        rf"{files.CONVOLUTION}: the scale of its weights is 2\d\.?\d* times larger than they need, which costs ", reason
    )
    assert first["bits"] == 8
    assert rows["runtime"]["error"]["verdict"] in ("IDENTICAL", "EQUAL")  # the runtime computes what the file says


def test_conditions_decide_on_a_quantised_file(xverify, tmp_path, plain):
    file = files.save(files.coarse(files.quantised(tmp_path, "QDQ"), "w2", 20), tmp_path / "coarse.onnx")
    done, _ = checked(xverify, tmp_path, file, "--against", plain, "--accept", "sqnr>=60,top1>=0")
    assert done.code == 1
    assert "sqnr>=60: sqnr of scores is" in done.out
    assert "--accept decides: sqnr>=60 does not hold" in done.out


@pytest.mark.parametrize("how", ["QDQ", pytest.param("QOperator", marks=SLOW)])
def test_a_range_of_activations_that_is_8_times_too_wide_is_a_warning_with_its_cost(xverify, tmp_path, plain, how):
    model = files.quantised(tmp_path, how)
    _, rows = checked(xverify, tmp_path, files.save(model, tmp_path / "right.onnx"), "--against", plain)
    widest = max(layer["wide"] for layer in rows["conversion"]["quantisation"]["layers"])
    assert widest < 2.5
    file = files.save(files.widened(model, "r2", 8), tmp_path / "wide.onnx")
    done, rows = checked(xverify, tmp_path, file, "--against", plain)
    assert done.code == 0
    assert "PASS, 1 warning" in done.out
    error = rows["conversion"]["error"]
    assert error["verdict"] == "DRIFT"
    found = re.search(
        r"/conv3/Conv: the range of the input (\w+) is (\S+) times wider than its values in these inputs, which costs (\S+) dB",
        error["reason"],
    )
    assert found, error["reason"]
    assert 6 < float(found[2]) < 16
    assert 1 < float(found[3]) < 18
    layers = {layer["layer"]: layer for layer in rows["conversion"]["quantisation"]["layers"]}
    assert layers["/conv3/Conv"]["wide"] == pytest.approx(float(found[2]), rel=0.01)
