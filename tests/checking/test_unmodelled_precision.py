"""Where no model tells what rounding to a precision may come to, a difference is UNTESTED, and ``--accept`` decides."""

import json

import numpy as np
import pytest

FORMAT = '''
"""A matrix in a JSON file: its float32 values, or whole numbers of steps. Nothing computes it in float64."""
import json
import numpy as np
from xverify.framework.modelfile import ModelFile, Signature, Tensor, by_name
from xverify.results.precision import LayerPrecision, Precision, from_layers
from xverify.weights.stored import Stored

def product(framework, model, example):
    return lambda x: {"y": (x @ model["w"]).astype(np.float32)}

class Adapter(ModelFile):
    name, title, runtime = "matrix", "matrix file", "numbers"
    needs = {"numpy": "numpy"}
    modes = {"product": product}

    def __init__(self, threads, device):
        pass

    @classmethod
    def recognises(cls, path):
        return path.read_bytes().startswith(b'{"matrix"')

    def open(self, path, options, float64):
        from xverify.framework.runner import refuse_float64
        refuse_float64(float64)
        held = json.loads(path.read_text())
        return {"w": np.array(held["matrix"], np.float32), "dtype": held["dtype"]}

    def signature(self, model):
        rows, columns = model["w"].shape
        return Signature((Tensor("x", (4, rows), "float32"),), (Tensor("y", (4, columns), "float32"),))

    def precision(self, model):
        if model["dtype"] == "float32":
            return Precision()
        return from_layers([LayerPrecision(model["dtype"], True, "per tensor", model["dtype"], "static")])

    def stored(self, model):
        arrays = {"w": model["w"]}
        return Stored(arrays, quantised={} if model["dtype"] == "float32" else {"w": model["dtype"]})

    def to_native(self, array, layout):
        return array

    to_numpy = to_native

    def wait(self, outputs):
        pass

    def environment(self):
        return {}
'''


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a matrix into a file: write(name, matrix, dtype)."""
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "matrix.py").write_text(FORMAT)
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))

    def written(name, matrix, dtype="int8"):
        path = tmp_path / name
        path.write_text(json.dumps({"matrix": matrix.tolist(), "dtype": dtype}))
        return path

    return written


PLAIN = np.random.default_rng(0).standard_normal((16, 8))


def stepped(matrix):
    """The matrix in whole steps of its largest value / 127."""
    step = np.abs(matrix).max() / 127
    return np.rint(matrix / step) * step


def checked(xverify, tmp_path, *arguments):
    done = xverify("check", *arguments, "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    (row,) = (each for each in json.loads((tmp_path / "r.json").read_text())["rows"] if each["task"] == "conversion")
    return done, row["error"]


def test_a_right_file_is_untested_and_conditions_decide(xverify, tmp_path, write):
    plain, file = write("plain.any", PLAIN, "float32"), write("int8.any", stepped(PLAIN))
    done, error = checked(xverify, tmp_path, file, "--against", plain)
    assert (done.code, error["verdict"]) == (4, "UNTESTED"), done.out + done.err
    assert "what rounding at int8 static may change is not known" in error["reason"]
    assert "--accept can decide" in error["reason"]
    assert {each["verdict"] for each in error["tensors"]} == {"UNTESTED"}
    assert "the cases of zeros, large, tiny, alternating inputs are not compared" in " ".join(done.out.split())
    done, _ = checked(xverify, tmp_path, file, "--against", plain, "--accept", "sqnr>=30")
    assert done.code == 0, done.out + done.err
    done, _ = checked(xverify, tmp_path, file, "--against", plain, "--accept", "sqnr>=80")
    assert done.code == 1, done.out + done.err


def test_what_float32_explains_is_equal_and_another_shape_is_invalid(xverify, tmp_path, write):
    plain = write("plain.any", PLAIN, "float32")
    done, error = checked(xverify, tmp_path, write("same.any", PLAIN), "--against", plain)
    assert done.code == 0, done.out + done.err
    assert error["verdict"] in ("IDENTICAL", "EQUAL")
    done, error = checked(xverify, tmp_path, write("wide.any", stepped(np.hstack([PLAIN, PLAIN]))), "--against", plain)
    assert (done.code, error["verdict"]) == (1, "INVALID"), done.out + done.err


def test_a_float32_file_is_judged_as_before(xverify, tmp_path, write):
    plain, file = write("plain.any", PLAIN, "float32"), write("other.any", stepped(PLAIN), "float32")
    done, error = checked(xverify, tmp_path, file, "--against", plain)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err


WRONG = {
    "one column has another sign": (
        lambda w: w * np.where(np.arange(8) == 3, -1, 1),
        "16 of its 128 values are more than 2 steps away",
    ),
    "its scale is 1.3 times too large": (lambda w: w * 1.3, "all of its values are x 1.3"),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_a_weight_that_no_rounding_gives_is_different(xverify, tmp_path, write, mistake):
    change, says = WRONG[mistake]
    plain, file = write("plain.any", PLAIN, "float32"), write("int8.any", change(stepped(PLAIN)))
    done, error = checked(xverify, tmp_path, file, "--against", plain)
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    assert f"w: {says}" in error["reason"]


def test_other_weights_are_no_pass(xverify, tmp_path, write):
    plain = write("plain.any", PLAIN, "float32")
    other = np.random.default_rng(1).standard_normal(PLAIN.shape)
    for name, matrix in (("other", other), ("permuted", PLAIN[:, ::-1])):
        done, error = checked(xverify, tmp_path, write(f"{name}.any", stepped(matrix)), "--against", plain)
        assert (done.code, error["verdict"]) == (4, "UNTESTED"), done.out + done.err
