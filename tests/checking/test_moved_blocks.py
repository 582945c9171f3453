"""Values of a quantised block that go in one direction together are a mistake, though each is hardly a step away."""

import json

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

node, K, N, BLOCK = helper.make_node, 128, 32, 32
FLOATS = (np.random.default_rng(1).standard_normal((K, N)) * 0.1).astype("f")


def rounded(bits, symmetric=False, whole=True):
    """(numbers, scales, zero points), each (blocks, values, columns) or with one value. whole: whether zero points round values."""
    w, most = FLOATS.reshape(K // BLOCK, BLOCK, N).astype(float), 2**bits - 1
    low, high = np.minimum(w.min(1, keepdims=True), 0), np.maximum(w.max(1, keepdims=True), 0)
    scale = 2 * np.abs(w).max(1, keepdims=True) / most if symmetric else (high - low) / most
    zero = np.full_like(scale, 2 ** (bits - 1)) if symmetric else np.rint(-low / scale)
    return np.clip(np.rint(w / scale) + zero if whole else np.rint((w - low) / scale), 0, most), scale, zero


def packed(numbers, bits):
    """Numbers along the first axis in bytes, the lowest bits first: (columns, bytes)."""
    numbers = numbers.astype(np.uint8).T
    return numbers if bits == 8 else numbers[:, ::2] | numbers[:, 1::2] << 4


def write(path, form, bits=4, parts=None):
    """y = x @ w: of floats, by MatMulNBits, or behind DequantizeLinear in blocks; or rows of a table by GatherBlockQuantized."""
    arrays, kind, given = {"w": FLOATS}, TensorProto.FLOAT, [4, K]
    nodes, table = [node("MatMul", ["x", "w"], ["y"], "layer")], form.endswith("table")
    if table:
        nodes, arrays, kind, given = (
            [node("Gather", ["w", "x"], ["y"], "layer")],
            {"w": FLOATS.T.copy()},
            TensorProto.INT64,
            [9],
        )
    if parts is not None:
        numbers, scale, zero = parts
        flat, scales = numbers.reshape(K, N), scale[:, 0].astype("f")
        if form == "blocked":
            arrays = {"q": flat.astype(np.uint8), "s": scales, "z": zero[:, 0].astype(np.uint8)}
            nodes = [node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0, block_size=BLOCK), *nodes]
        else:
            arrays = {"q": packed(flat, bits), "s": scales.T.copy(), "z": packed(zero[:, 0], bits)}
            about = {"bits": bits, "block_size": BLOCK, "domain": "com.microsoft"}
            if table:
                nodes = [
                    node(
                        "GatherBlockQuantized",
                        ["q", "x", "s", "z"],
                        ["y"],
                        "layer",
                        quantize_axis=1,
                        gather_axis=0,
                        **about,
                    )
                ]
            else:
                arrays = {
                    name: array.reshape(N, -1, BLOCK * bits // 8) if name == "q" else array.reshape(-1)
                    for name, array in arrays.items()
                }
                nodes = [node("MatMulNBits", ["x", "q", "s", "z"], ["y"], "layer", K=K, N=N, **about)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", kind, given)], [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in arrays.items()],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
    return path


def checked(xverify, tmp_path, form, bits, parts):
    file, right = write(tmp_path / "few.onnx", form, bits, parts), write(tmp_path / "floats.onnx", form)
    done = xverify("check", file, "--against", right, "--json", tmp_path / "r.json", "--force")
    assert "Traceback" not in done.err, done.err
    return next(
        row["error"] for row in json.loads((tmp_path / "r.json").read_text())["rows"] if row["task"] == "conversion"
    )


def shifted(numbers, scale, zero):
    zero = zero.copy()
    zero[1, 0, 5] += 1 if zero[1, 0, 5] < 15 else -1
    return numbers, scale, zero


def column(numbers, scale, zero):
    zero = zero.copy()
    zero[:, 0, 5] -= 1
    return numbers, scale, zero


def larger(numbers, scale, zero):
    scale = scale.copy()
    scale[1, 0, 5] *= 1.05
    return numbers, scale, zero


@pytest.mark.parametrize(
    ("form", "bits", "wrong", "says"),
    [
        ("nbits", 4, shifted, "the zero point of the block at [32, 5] is 1 too"),
        ("blocked", 8, column, "the zero point of channel 5 is 1 too small"),
        ("nbits", 8, larger, "the scale of the block at [32, 5] is × 1.05"),
        ("blocked table", 8, shifted, "the zero point of the block at [5, 32] is 1 too small"),
    ],
)  # fmt: skip
def test_a_block_that_moves_together_is_different_and_named(xverify, tmp_path, form, bits, wrong, says):
    error = checked(xverify, tmp_path, form, bits, wrong(*rounded(bits)))
    assert error["verdict"] == "DIFFERENT"
    assert says in error["reason"], error["reason"]


@pytest.mark.parametrize(
    ("form", "how"),
    [("nbits", {}), ("nbits", {"symmetric": True}), ("blocked", {"whole": False}), ("blocked table", {})],
)
def test_right_blocks_are_not_accused(xverify, tmp_path, form, how):
    bits = 8 if form.startswith("blocked") else 4
    error = checked(xverify, tmp_path, form, bits, rounded(bits, **how))
    assert error["verdict"] == "EQUAL", error["reason"]


@pytest.mark.parametrize("draw", ["standard_normal", "laplace", "uniform"])
def test_right_quantisers_of_many_kinds_move_no_block(draw):
    from types import SimpleNamespace as Weight

    from xverify.replay.graph.explain.moved_blocks import moved_block

    random = np.random.default_rng(5)
    for bits in (2, 3, 4, 8):
        for size in (16, 32, 128):
            w = getattr(random, draw)(size=(8, size, 64)) - 0.5 * (draw == "uniform")
            low, high = np.minimum(w.min(1, keepdims=True), 0), np.maximum(w.max(1, keepdims=True), 0)
            scale, most = (high - low) / (2**bits - 1), 2**bits - 1
            zero = np.rint(-low / scale)
            ways = {  # nearest; another zero point than the one that rounds; up or down by chance; scales in 16 bits
                "nearest": (np.rint(w / scale) + zero, scale), "apart": (np.rint((w - low) / scale), scale),
                "chance": (np.floor(w / scale + random.random(w.shape)) + zero, scale),
                "half": (np.rint(w / scale) + zero, scale.astype(np.float16).astype(float)),
            }  # fmt: skip
            for name, (numbers, step) in ways.items():
                values = (np.clip(numbers, 0, most) - zero) * step
                parts = [
                    np.broadcast_to(each, w.shape).reshape(-1, 64)
                    for each in (values, step, -zero * step, (most - zero) * step)
                ]
                weight = Weight(**dict(zip(("values", "step", "low", "high"), parts)))
                assert not moved_block(weight, w.reshape(-1, 64)), (name, bits, size)
