"""int8 kernels of processors without VNNI saturate sums of two products: a node that differs so is told, with a remedy."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

from xverify.replay.graph.judge.replay import replay  # noqa: E402
from xverify.replay.graph.model import Graph  # noqa: E402
from xverify.results.verdicts import Verdict  # noqa: E402
from xverify.verdict.findings import SATURATES  # noqa: E402

RANDOM = np.random.default_rng(0)
A = RANDOM.integers(150, 256, (3, 7)).astype(np.uint8)
B = (RANDOM.integers(70, 128, (7, 5)) * RANDOM.choice([-1, 1], (7, 5))).astype(np.int8)
IMAGE = RANDOM.integers(0, 256, (1, 3, 5, 5)).astype(np.uint8)
KERNEL = (RANDOM.integers(70, 128, (4, 3, 3, 3)) * RANDOM.choice([-1, 1], (4, 3, 3, 3))).astype(np.int8)
ZERO, SIGNED, SCALE, RESULT, MIDDLE = np.uint8(7), np.int8(0), np.float32(0.02), np.float32(900), np.uint8(128)
EIGHT, WHOLE, FLOAT = TensorProto.UINT8, TensorProto.INT32, TensorProto.FLOAT


def sums(rows, columns):
    """Products of pairs along the last axis of the rows, (rows, columns), each sum of two within 16 bits."""
    found = np.zeros((len(rows), columns.shape[1]), int)
    for k in range(0, rows.shape[1], 2):
        pair = sum(
            np.outer(rows[:, j].astype(int), columns[j].astype(int)) for j in range(k, min(k + 2, rows.shape[1]))
        )
        found += np.clip(pair, -(2**15), 2**15 - 1)
    return found


def product():
    return sums(A, B) - int(ZERO) * B.astype(int).sum(0)


def image():
    """The sums of the convolution, whose channels follow each other first."""
    padded = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=ZERO)
    rows = [padded[0, :, i : i + 3, j : j + 3].transpose(1, 2, 0).reshape(-1) for i in range(5) for j in range(5)]
    columns = KERNEL.transpose(2, 3, 1, 0).reshape(-1, 4)
    return (sums(np.array(rows), columns) - int(ZERO) * columns.astype(int).sum(0)).T.reshape(1, 4, 5, 5)


def steps(found):
    return np.clip(np.rint(found / RESULT) + MIDDLE, 0, 255).astype(np.uint8)


# Operator -> (inputs behind the first, its input, type of the output, what the kernel makes of its sums, attributes)
CASES = {
    "MatMulInteger": ([B, ZERO, SIGNED], A, WHOLE, lambda: product().astype(np.int32), {}),
    "QLinearMatMul": (
        [np.float32(1), ZERO, B, np.float32(1), SIGNED, RESULT, MIDDLE], A, EIGHT, lambda: steps(product()), {},
    ),
    "MatMulIntegerToFloat": (
        [B, SCALE, SCALE, ZERO, SIGNED], A, FLOAT, lambda: (product() * (SCALE * SCALE)).astype("f"), {"domain": "com.microsoft"},
    ),
    "QGemm": (
        [np.float32(1), ZERO, B.T.copy(), np.float32(1), SIGNED, np.zeros(5, np.int32), RESULT, MIDDLE], A, EIGHT,
        lambda: steps(product()), {"domain": "com.microsoft", "transB": 1},
    ),
    "QLinearConv": (
        [np.float32(1), ZERO, KERNEL, np.float32(1), SIGNED, RESULT, MIDDLE], IMAGE, EIGHT, lambda: steps(image()),
        {"pads": [1] * 4},
    ),
}  # fmt: skip


def graph_of(op):
    constants, x, kind, _, attributes = CASES[op]
    names = [f"c{place}" for place in range(len(constants))]
    written = [numpy_helper.from_array(np.asarray(array), name) for name, array in zip(names, constants)]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], op, **attributes)], "g", [helper.make_tensor_value_info("x", EIGHT, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)], written,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), {"x": x}


@pytest.mark.parametrize("op", CASES)
def test_a_node_that_saturates_is_different_with_the_remedy_and_another_fault_is_not_called_so(op):
    model, inputs = graph_of(op)
    right = CASES[op][3]()
    (finding,) = replay(Graph(model), inputs, {"y": right}).findings
    assert (finding.verdict, finding.reason) == (Verdict.DIFFERENT, SATURATES)
    wrong = right.copy()
    wrong.reshape(-1)[3] += 5
    (finding,) = replay(Graph(model), inputs, {"y": wrong}).findings
    assert finding.verdict == Verdict.DIFFERENT
    assert finding.reason != SATURATES
