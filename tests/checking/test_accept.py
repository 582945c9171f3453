"""``--accept`` is a gate over every output and every item: what has no figure fails it, by name."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

RANDOM = np.random.default_rng(0)
FIRST, SECOND = RANDOM.standard_normal((2, 8, 6)).astype(np.float32)
HALF = np.array([[1], [0]], np.float32)


def write(path, outputs=("y1", "y2"), factors=(1.0, 1.0), convolution=False):
    """Two products of one input, or two convolutions of it; factors: what each is multiplied by."""
    shape = [2, 8, 5] if convolution else [2, 8]
    weights = {"w1": FIRST, "w2": SECOND}
    nodes = []
    for index in (1, 2):
        if convolution:
            weights[f"w{index}"] = weights[f"w{index}"].T[:, :, None]
            nodes.append(helper.make_node("Conv", ["x", f"w{index}"], [f"z{index}"]))
        else:
            nodes.append(helper.make_node("MatMul", ["x", f"w{index}"], [f"z{index}"]))
        factor = np.asarray(factors[index - 1], np.float32)
        weights[f"f{index}"] = factor[..., None] if convolution and factor.ndim else factor
        nodes.append(helper.make_node("Mul", [f"z{index}", f"f{index}"], [f"y{index}"]))
    graph = helper.make_graph(
        nodes,
        "model",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("convolution", [False, True])
@pytest.mark.parametrize(
    ("reference", "file", "says"),
    [
        ({}, {"outputs": ("y1",)}, "y2 has no figures: the file has no such output"),
        ({}, {"factors": (HALF, 1.0)}, "item 1 of case 0 is zero in the file alone"),
        ({"factors": (1.0, 0.0)}, {}, "is zero in the reference alone"),
    ],
)
def test_what_has_no_figure_fails_the_gate_by_name(xverify, tmp_path, convolution, reference, file, says):
    right = write(tmp_path / "right.onnx", convolution=convolution, **reference)
    wrong = write(tmp_path / "wrong.onnx", convolution=convolution, **file)
    done = xverify("check", wrong, "--against", right, "--accept", "cosine>=0.99")
    assert done.code == 1, done.out + done.err
    assert says in " ".join(done.out.split())


@pytest.mark.slow
def test_zeros_on_both_sides_agree(xverify, tmp_path):
    right = write(tmp_path / "right.onnx", factors=(HALF, 1.0))
    near = write(tmp_path / "near.onnx", factors=(HALF * np.float32(1.001), 1.001))
    done = xverify("check", near, "--against", right, "--accept", "cosine>=0.99,sqnr>=50")
    assert done.code == 0, done.out + done.err
