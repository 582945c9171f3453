"""``xverify check`` on files whose steps are chosen for the results of layers, as GPTQ does: right ones are not accused."""

import itertools
import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from helpers import narrowfiles as files  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

SIZES = (40, 64, 64, 24)
SLOW = pytest.mark.slow


def weights(seed):
    random = np.random.default_rng(seed)
    made = {}
    for place, (rows, columns) in enumerate(itertools.pairwise(SIZES), 1):
        made[f"w{place}"] = (random.standard_normal((rows, columns)) * 1.4 / np.sqrt(rows)).astype(np.float32)
        made[f"b{place}"] = (random.standard_normal(columns) * 0.2).astype(np.float32)
    return made


def model(constants, steps=()):
    """A perceptron. steps: (whole numbers, scales) of each matrix, which stands behind DequantizeLinear then."""
    nodes, tensors, last = [], [numpy_helper.from_array(array, name) for name, array in constants.items()], "x"
    for place in (1, 2, 3):
        weight = f"w{place}"
        if steps:
            whole, scale = steps[place - 1]
            tensors = [tensor for tensor in tensors if tensor.name != weight]
            kind = TensorProto.INT8 if np.abs(whole).max() > 8 else TensorProto.INT4
            tensors += [
                helper.make_tensor(f"{weight}_q", kind, whole.shape, whole.reshape(-1).tolist()),
                numpy_helper.from_array(scale.astype(np.float32), f"{weight}_s"),
            ]
            nodes.append(helper.make_node("DequantizeLinear", [f"{weight}_q", f"{weight}_s"], [weight], axis=1))
        out = "y" if place == 3 else f"a{place}"
        nodes += [
            helper.make_node("MatMul", [last, weight], [f"m{place}"], f"layer{place}"),
            helper.make_node("Add", [f"m{place}", f"b{place}"], [out], f"bias{place}"),
        ]
        if place < 3:
            nodes.append(helper.make_node("Relu", [out], [f"r{place}"], f"relu{place}"))
            last = f"r{place}"
    ends = [helper.make_tensor_value_info(name, 1, [8, size]) for name, size in (("x", SIZES[0]), ("y", SIZES[-1]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def gptq(w, x, bits):
    """The whole numbers and the scale of each column by GPTQ: the error of each row is made up for by the rows behind it.

    w: (rows, columns). x: (samples, rows), the inputs of the layer.
    """
    most = 2 ** (bits - 1) - 1
    scale = np.abs(w).max(0) / most
    hessian = x.T @ x
    hessian += 0.01 * np.mean(np.diag(hessian)) * np.eye(len(w))
    inverse = np.linalg.cholesky(np.linalg.inv(hessian)).T
    left, whole = w.astype(np.float64).copy(), np.zeros(w.shape, np.int64)
    for row in range(len(w)):
        whole[row] = np.clip(np.rint(left[row] / scale), -most - 1, most)
        error = (left[row] - whole[row] * scale) / inverse[row, row]
        left[row:] -= np.outer(inverse[row, row:], error)
    return whole, scale


def quantised(constants, bits, seed, chosen=True, corrected=False):
    """(whole numbers, scale) of each matrix, and the constants.

    chosen: by GPTQ, or else the nearest ones. corrected: biases make up for the mean errors.
    """
    x, steps, biases = np.random.default_rng(seed + 100).standard_normal((512, SIZES[0])), [], {}
    for place in (1, 2, 3):
        w, b = (constants[f"{name}{place}"].astype(np.float64) for name in "wb")
        steps.append(gptq(w, x if chosen else np.eye(len(w)), bits))
        if corrected:
            change = x.mean(0) @ (steps[-1][0] * steps[-1][1] - w)
            biases[f"b{place}"] = (b - change).astype(np.float32)
        x = np.maximum(x @ w + b, 0)
    return steps, {**constants, **biases}


def checked(xverify, folder, constants, steps, seed, changed=None):
    """The conversion's error, and all notes."""
    plain = files.save(model(weights(seed)), folder / "plain.onnx")
    file = files.save(model(changed or constants, steps), folder / "chosen.onnx")
    done = xverify("check", file, "--against", plain, "--json", folder / "r.json")
    assert "Traceback" not in done.err, done.err
    result = json.loads((folder / "r.json").read_text())
    (row,) = (row for row in result["rows"] if row["task"] == "conversion")
    return row["error"], result["notes"]


CASES = [(bits, seed) for bits in (4, 8) for seed in (0, 1, 2)]


@pytest.mark.parametrize(
    ("bits", "seed"), [each if each == (4, 0) else pytest.param(*each, marks=SLOW) for each in CASES]
)
def test_steps_that_gptq_chose_are_not_accused(xverify, tmp_path, bits, seed):
    steps, constants = quantised(weights(seed), bits, seed)
    error, notes = checked(xverify, tmp_path, constants, steps, seed)
    assert error["verdict"] in ("EQUAL", "UNTESTED"), error["reason"]  # 4 bits leave little of inputs that are zeros
    assert "one step" not in (error["reason"] or "")
    assert any("the results of their layers are as near, as with GPTQ" in note for note in notes), notes


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=SLOW) for each in (1, 2))])
def test_biases_that_are_corrected_for_4_bits_are_not_accused(xverify, tmp_path, seed):
    steps, constants = quantised(weights(seed), 4, seed, chosen=False, corrected=True)
    assert np.linalg.norm(constants["b2"] - weights(seed)["b2"]) > 0.4 * np.linalg.norm(weights(seed)["b2"])
    error, notes = checked(xverify, tmp_path, constants, steps, seed)
    assert error["verdict"] in ("EQUAL", "UNTESTED"), error["reason"]
    assert "more than rounding" not in (error["reason"] or "")
    assert any("as after a correction of the bias" in note for note in notes), notes


def larger(steps):
    return [steps[0], (steps[1][0], steps[1][1] * 1.3), steps[2]]


def negated(steps):
    whole = steps[1][0].copy()
    whole[:, 3] *= -1
    return [steps[0], (np.clip(whole, -8, 7), steps[1][1]), steps[2]]


def exchanged(steps):
    whole = steps[1][0].copy()
    whole[:, [1, 2]] = whole[:, [2, 1]]
    return [steps[0], (whole, steps[1][1]), steps[2]]


def rolled(steps):
    return [steps[0], (steps[1][0], np.roll(steps[1][1], 1)), steps[2]]


def one_bit(steps):
    whole = steps[1][0].copy()
    whole[5, 7] += -8 if whole[5, 7] >= 0 else 8
    return [steps[0], (whole, steps[1][1]), steps[2]]


def shifted(steps):
    return [steps[0], (np.clip(steps[1][0] + 1, -8, 7), steps[1][1]), steps[2]]


def other_row(steps):
    whole = steps[1][0].copy()
    whole[:, ::8] = np.random.default_rng(0).permuted(whole[:, ::8], axis=0)
    return [steps[0], (whole, steps[1][1]), steps[2]]


MISTAKES = (larger, negated, exchanged, rolled, one_bit, shifted, other_row)


@pytest.mark.parametrize("plant", [each if each is one_bit else pytest.param(each, marks=SLOW) for each in MISTAKES])
def test_a_mistake_in_steps_that_gptq_chose_is_found_and_named(xverify, tmp_path, plant):
    steps, constants = quantised(weights(0), 4, 0)
    error, _ = checked(xverify, tmp_path, constants, plant(steps), 0)
    assert error["verdict"] == "DIFFERENT"
    assert "layer2: " in error["reason"]


def test_a_halved_bias_beside_steps_that_gptq_chose_is_found(xverify, tmp_path):
    steps, constants = quantised(weights(0), 4, 0, corrected=True)
    error, _ = checked(xverify, tmp_path, constants, steps, 0, {**constants, "b2": constants["b2"] / 2})
    assert error["verdict"] == "DIFFERENT"
    assert "bias b2" in error["reason"]
