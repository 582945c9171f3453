"""``xverify check`` from outside, on small ONNX files with planted faults."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from helpers.htmlpages import Page

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

pytestmark = pytest.mark.usefixtures("in_one_process")
RANDOM = np.random.default_rng(0)
KERNEL = RANDOM.standard_normal((4, 3, 3, 3)).astype(np.float32) * 0.3
BIAS = RANDOM.standard_normal(4).astype(np.float32) * 0.1
MATRIX = RANDOM.standard_normal((4 * 64, 10)).astype(np.float32) * 0.1


def write(path: Path, *, bias=BIAS, softmax=True, names=("x", "scores", "features"), swap=False, matrix=MATRIX) -> Path:
    """A convolution, a Relu, a product and a softmax. Its outputs are class scores, and features of the same shape."""
    x, scores, features = names
    shape, out = ["batch", 3, 8, 8], ["batch", 10]
    nodes = [
        helper.make_node("Conv", [x, "kernel", "bias"], ["c"], "/conv/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], "/relu/Relu"),
        helper.make_node("Flatten", ["r"], ["f"], "/Flatten"),
        helper.make_node("MatMul", ["f", "matrix"], ["logits"], "/fc/MatMul"),
        helper.make_node(
            "Softmax" if softmax else "Identity", ["logits"], [features if swap else scores], "/softmax/Softmax"
        ),
        helper.make_node("Tanh", ["logits"], [scores if swap else features], "/tanh/Tanh"),
    ]
    arrays = {"kernel": KERNEL, "bias": bias, "matrix": matrix}
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, out) for name in (scores, features)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "good.onnx")


def test_the_page_has_the_command_that_asks_for_the_same(xverify, tmp_path):
    file, page = write(tmp_path / "a, b.onnx"), tmp_path / "r.html"
    options = ["--shape", "x=2x3x8x8", "--input-range=-1,1", "--accept", "sqnr>=30"]
    done = xverify("check", file, *options, "--json", tmp_path / "r.json", "--html", page)
    assert done.code == 0, done.out + done.err
    asked = json.loads((tmp_path / "r.json").read_text())["settings"]["asked"]
    assert asked["arguments"] == [str(file)]
    assert asked["options"] == {"shape": ["x=2x3x8x8"], "input_range": ["-1,1"], "accept": ["sqnr>=30"]}
    assert shlex.join(["xverify", "check", str(file), *options]) in Page(page.read_text()).text


def test_a_right_file_passes_and_every_node_is_checked(xverify, good, tmp_path):
    done = xverify("check", good, "--json", tmp_path / "r.json", "--nodes")
    assert done.code == 0, done.out + done.err
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert (row["error"]["layers"]["compared"], row["error"]["layers"]["known"]) == (6, 6)
    assert "/conv/Conv" in done.out
    assert "--shape x=2x3x8x8" in done.out  # the guess is told
    # The verdict on the outputs is shown as soon as it is known.
    assert f"its outputs alone are {row['error']['verdict']}; evaluating every node" in done.err


def stale(bias):
    changed = bias.copy()
    changed[2] *= 1.5
    return changed


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"bias": BIAS * 0}, "bias (of /conv/Conv) is zero"),
        *(
            pytest.param(fault, says, marks=pytest.mark.slow)
            for fault, says in (
                ({"bias": stale(BIAS)}, "stale: only bias (of /conv/Conv) differs"),
                ({"softmax": False}, "scores: a softmax is missing at the end"),
                (
                    {"matrix": MATRIX.astype(np.float16).astype(np.float32)},
                    "matrix (of /fc/MatMul) is rounded to float16",
                ),
                ({"swap": True}, "swapped"),
            )
        ),
    ],
)
def test_a_conversion_with_a_fault_fails_although_its_runtime_is_right(xverify, good, tmp_path, fault, says):
    wrong = write(tmp_path / "wrong.onnx", **fault)
    done = xverify("check", wrong, "--against", good, "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    runtime, conversion = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert runtime["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert conversion["error"]["verdict"] == "DIFFERENT"
    assert says in conversion["error"]["reason"]
    assert says in done.out


def test_other_names_are_matched_by_content_and_the_matching_is_printed(xverify, good, tmp_path):
    other = write(tmp_path / "other.onnx", names=("image", "out_0", "out_1"), swap=True)
    done = xverify("check", other, "--against", good, "--details")
    assert done.code == 0, done.out + done.err
    assert "x = image" in done.out
    assert "scores = out_1" in done.out
    assert "the outputs decide" in done.out


@pytest.mark.slow
def test_recorded_outputs_are_a_reference(xverify, good, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    x = RANDOM.standard_normal((2, 3, 8, 8)).astype(np.float32)
    scores, features = ort.InferenceSession(str(good)).run(None, {"x": x})
    np.savez(tmp_path / "right.npz", x=x, scores=scores, features=features)
    assert xverify("check", good, "--against", tmp_path / "right.npz").code == 0
    np.savez(tmp_path / "wrong.npz", x=x, scores=scores * 1.001, features=features)
    assert xverify("check", good, "--against", tmp_path / "wrong.npz").code == 1


def test_a_constant_output_is_never_a_pass(xverify, tmp_path):
    constant = write(tmp_path / "constant.onnx", matrix=MATRIX * 0)
    done = xverify("check", constant)
    assert done.code == 4
    assert "UNTESTED" in done.out


@pytest.mark.slow
def test_the_figures_decide_where_the_user_says_so(xverify, good, tmp_path):
    rounded = write(tmp_path / "rounded.onnx", matrix=MATRIX.astype(np.float16).astype(np.float32))
    common = ("check", rounded, "--against", good)
    assert xverify(*common, "--accept", "top1>=0.5,sqnr>=30").code == 0
    done = xverify(*common, "--accept", "sqnr>=200")
    assert done.code == 1
    assert "sqnr>=200: sqnr of" in done.out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing.onnx"], "there is no such file"),
        (["GOOD", "--shape", "x=1x4x8x8"], "the file says batchx3x8x8"),
        (["GOOD", "--accept", "top2>1"], "unknown figure 'top2'"),
        (["GOOD", "--against", "missing.onnx"], "there is no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(xverify, good, arguments, says):
    done = xverify("check", *[str(good) if each == "GOOD" else each for each in arguments])
    assert done.code == 2
    assert says in done.err
    assert "Traceback" not in done.err
