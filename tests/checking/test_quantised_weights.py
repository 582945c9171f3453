"""``xverify check`` on quantised files with one wrong weight: it is DIFFERENT, and named with its layer and the cause."""

import json

import numpy as np
import pytest
from helpers import narrowfiles as files

onnx = pytest.importorskip("onnx")
from onnx import helper, numpy_helper  # noqa: E402  it is there

pytest.importorskip("torch")
from xverify.replay.graph.explain.weight_steps import CORRECTED, CORRECTED_RMS  # noqa: E402  imports torch

SLOW = pytest.mark.slow
LAYERS = {"w2": files.CONVOLUTION, "w3": "/conv3/Conv", "w4": files.LAYER}


def check(xverify, folder, model, plain):
    """The conversion's row, and all that was printed."""
    file = files.save(model, folder / "int8.onnx")
    done = xverify("check", file, "--against", plain, "--json", folder / "r.json")
    assert "Traceback" not in done.err, done.err
    result = json.loads((folder / "r.json").read_text())
    (row,) = (row for row in result["rows"] if row["task"] == "conversion")
    return row["error"], [*result["notes"], *row["notes"]]


def parts(model, weight):
    """The names of the whole numbers, the scale and the zero point of a weight."""
    names = [name for name in files.constants(model) if name.startswith(weight)]
    return [
        next(name for name in names if name.endswith(end) and "quantized_" not in name)
        for end in ("_quantized", "_scale", "_zero_point")
    ]


def reversed_scales(model, weight):
    scale = parts(model, weight)[1]
    return {scale: files.constants(model)[scale][::-1]}, "the scales belong to other channels"


def halved_bias(model, weight):
    bias = f"b{weight[1:]}_quantized"
    return {bias: files.constants(model)[bias] // 2}, f"its bias {bias}"


def larger_scale(model, weight):
    scale = parts(model, weight)[1]
    array = files.constants(model)[scale].copy()
    array.reshape(-1)[-1] *= 1.3
    return {scale: array}, "× 1.3"


def negated_row(model, weight):
    steps, _, zero = parts(model, weight)
    array, offset = files.constants(model)[steps].astype(int), int(files.constants(model)[zero].reshape(-1)[0])
    array[1] = 2 * offset - array[1]
    kind = files.constants(model)[steps].dtype
    limits = np.iinfo(kind)
    return {steps: np.clip(array, limits.min, limits.max).astype(kind)}, "[1, "


def other_zero(model, weight):
    zero = parts(model, weight)[2]
    array = files.constants(model)[zero].copy()
    array.reshape(-1)[0] += 3
    return {zero: array}, "is 3 too large"


PLANTED = [
    ("QDQ", {"per_channel": True}, reversed_scales, "w3"),
    ("QDQ", {"per_channel": True}, halved_bias, "w3"),
    ("QDQ", {"per_channel": True}, larger_scale, "w4"),
    ("QDQ", {"per_channel": True, "symmetric": False}, other_zero, "w2"),
    ("QDQ", {}, halved_bias, "w2"),
    ("QDQ", {}, negated_row, "w3"),
    ("QDQ", {"symmetric": False}, other_zero, "w4"),
    ("QOperator", {"per_channel": True}, reversed_scales, "w3"),
    ("QOperator", {"per_channel": True}, halved_bias, "w4"),
    ("QOperator", {}, larger_scale, "w2"),
    ("QOperator", {"symmetric": False}, negated_row, "w3"),
    ("QOperator", {}, other_zero, "w4"),
    ("dynamic", {"per_channel": True}, reversed_scales, "w4"),
    ("dynamic", {}, larger_scale, "w3"),
    ("dynamic", {}, negated_row, "w4"),
    ("dynamic", {}, other_zero, "w2"),
]


@pytest.mark.parametrize(
    ("how", "settings", "plant", "weight"),
    [each if place in (0, 14) else pytest.param(*each, marks=SLOW) for place, each in enumerate(PLANTED)],
)
def test_a_wrong_weight_is_different_and_named(xverify, tmp_path, how, settings, plant, weight):
    plain = files.save(files.network(), tmp_path / "reference.onnx")
    model = files.quantised(tmp_path, how, **settings)
    changed, says = plant(model, weight)
    error, _ = check(xverify, tmp_path, files.with_constants(model, changed), plain)
    assert error["verdict"] == "DIFFERENT"
    assert f"{LAYERS[weight]}" in error["reason"]
    assert "are more than one step from the reference's" in error["reason"]
    assert says in error["reason"]


RIGHT = [
    (how, settings, seed)
    for how in files.FORMATS
    for settings in (
        {},
        {"per_channel": True},
        {"symmetric": False},
        {"per_channel": True, "symmetric": False, "unsigned": True},
    )
    for seed in (0, 1, 2)
]


@pytest.mark.parametrize(
    ("how", "settings", "seed"),
    [each if each == ("QDQ", {"per_channel": True}, 1) else pytest.param(*each, marks=SLOW) for each in RIGHT],
)
def test_no_weight_of_a_right_file_is_accused(xverify, tmp_path, how, settings, seed):
    plain = files.save(files.network(seed=seed), tmp_path / "reference.onnx")
    model = files.quantised(tmp_path, how, seed=seed, **settings)
    error, notes = check(xverify, tmp_path, model, plain)
    assert error["verdict"] in ("EQUAL", "DRIFT")
    assert "one step" not in (error["reason"] or "")
    assert not any("one by one" in note for note in notes)  # all of them are compared


def without_names(model):
    """The model without names of nodes, and with other names of constants and values."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = {value.name for value in (*copy.graph.input, *copy.graph.output)}
    names = {tensor.name: f"k{place}" for place, tensor in enumerate(copy.graph.initializer)}
    for tensor in copy.graph.initializer:
        tensor.name = names[tensor.name]
    for node in copy.graph.node:
        node.name = ""
        for side in (node.input, node.output):
            side[:] = [each if each in kept or not each else names.setdefault(each, f"v{len(names)}") for each in side]
    del copy.graph.value_info[:]
    return copy


@SLOW
@pytest.mark.parametrize("how", ["QDQ", "QOperator"])
def test_layers_without_names_have_partners(xverify, tmp_path, how):
    plain = files.save(files.network(), tmp_path / "reference.onnx")
    model = files.quantised(tmp_path, how, per_channel=True)
    _, notes = check(xverify, tmp_path, without_names(model), plain)
    assert not any("one by one" in note for note in notes)
    changed, _ = reversed_scales(model, "w3")
    error, _ = check(xverify, tmp_path, without_names(files.with_constants(model, changed)), plain)
    assert error["verdict"] == "DIFFERENT"
    assert "the reference's w3" in error["reason"]
    assert "the scales belong to other channels" in error["reason"]


def with_norm(model):
    """The network with a batch norm behind its second convolution, and the same with the norm folded into that."""
    random = np.random.default_rng(3)
    scale, shift, mean, variance = (random.uniform(0.5, 2, 8).astype(np.float32) for _ in range(4))
    normed = onnx.ModelProto()
    normed.CopyFrom(model)
    place = next(place for place, node in enumerate(normed.graph.node) if node.name == files.CONVOLUTION)
    normed.graph.node[place].output[0] = "before"
    names = {"norm.scale": scale, "norm.shift": shift, "norm.mean": mean, "norm.variance": variance}
    normed.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in names.items())
    normed.graph.node.insert(place + 1, helper.make_node("BatchNormalization", ["before", *names], ["c2"], "/norm"))
    factor, w = scale / np.sqrt(variance + 1e-5), files.constants(model)
    changed = {"w2": w["w2"] * factor[:, None, None, None], "b2": (w["b2"] - mean) * factor + shift}
    return normed, files.with_constants(model, changed)


@pytest.mark.parametrize("how", ["QDQ", *(pytest.param(each, marks=SLOW) for each in ("dynamic", "QOperator"))])
def test_weights_with_a_folded_batch_norm_are_compared(xverify, tmp_path, how):
    normed, folded = with_norm(files.network())
    plain = files.save(normed, tmp_path / "reference.onnx")
    model = files.quantised(tmp_path, how, model=folded)
    error, notes = check(xverify, tmp_path, model, plain)
    assert error["verdict"] in ("EQUAL", "DRIFT")
    assert "one step" not in (error["reason"] or "")
    assert not any("one by one" in note for note in notes)
    bias = "b2" if how == "dynamic" else "b2_quantized"
    halved = files.with_constants(
        model, {bias: (files.constants(model)[bias] / 2).astype(files.constants(model)[bias].dtype)}
    )
    error, _ = check(xverify, tmp_path, halved, plain)
    assert error["verdict"] == "DIFFERENT"
    assert f"its bias {bias} are more than" in error["reason"]
    assert "with BatchNormalization /norm folded in" in error["reason"]
    assert "all of its values are × 0.5" in error["reason"]


@pytest.mark.parametrize(("inputs", "channels"), [(16, 16), (64, 64), (256, 128), (1024, 256), (576, 64)])
def test_a_correction_of_a_bias_is_below_the_limit_and_a_halved_bias_above(inputs, channels):
    rng = np.random.default_rng(inputs)
    for _ in range(5):
        w = rng.uniform(-1, 1, (channels, inputs)) / np.sqrt(inputs)
        bias = rng.uniform(-1, 1, channels) / np.sqrt(inputs)
        step = np.abs(w).max(1, keepdims=True) / 127
        means = np.maximum(rng.standard_normal((256, inputs)), 0).mean(0)
        correction = (np.round(w / step) * step - w) @ means
        rms = np.sqrt(np.mean(bias**2))
        assert np.abs(correction).max() < CORRECTED * rms < np.abs(bias / 2).max()
        assert np.sqrt(np.mean(correction**2)) < CORRECTED_RMS * rms


def test_a_bias_in_real_numbers_that_is_corrected_is_not_accused(xverify, tmp_path):
    plain = files.save(matrices(), tmp_path / "reference.onnx")
    model = in_blocks(matrices(), "QOperator")
    bias = files.constants(model)["b1"]
    shift = 0.02 * np.std(bias) * np.where(np.arange(bias.size) % 2, 1, -1)
    corrected = files.with_constants(model, {"b1": (bias + shift).astype(np.float32)})
    error, notes = check(xverify, tmp_path, corrected, plain)
    assert "more than rounding" not in (error["reason"] or "")
    assert any("b1" in note and "as after a correction of the bias" in note for note in notes)


def matrices():
    """Two matrices with biases, and a ReLU between them."""
    random = np.random.default_rng(2)
    sizes = {"w1": (40, 48), "b1": (48,), "w2": (48, 32), "b2": (32,)}
    weights = {name: (random.standard_normal(size) * 0.2).astype(np.float32) for name, size in sizes.items()}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["m1"], "first"),
        helper.make_node("Add", ["m1", "b1"], ["a1"], "add1"),
        helper.make_node("Relu", ["a1"], ["r1"], "relu"),
        helper.make_node("MatMul", ["r1", "w2"], ["m2"], "second"),
        helper.make_node("Add", ["m2", "b2"], ["y"], "add2"),
    ]
    ends = [helper.make_tensor_value_info(name, 1, [4, size]) for name, size in (("x", 40), ("y", 32))]
    constants = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def in_blocks(model, how):
    """The model with matrices in blocks of 16 values of 4 bits."""
    quantiser = pytest.importorskip("onnxruntime.quantization.matmul_nbits_quantizer")
    from onnxruntime.quantization import QuantFormat

    work = quantiser.MatMulNBitsQuantizer(
        model, block_size=16, is_symmetric=False, quant_format=getattr(QuantFormat, how)
    )
    work.process()
    return work.model.model


@pytest.mark.parametrize("how", ["QOperator", pytest.param("QDQ", marks=SLOW)])
def test_blocks_of_4_bits_are_compared(xverify, tmp_path, how):
    plain = files.save(matrices(), tmp_path / "reference.onnx")
    model = in_blocks(matrices(), how)
    error, notes = check(xverify, tmp_path, model, plain)
    assert error["verdict"] == "EQUAL"
    assert not any("one by one" in note for note in notes)
    scale = next(name for name in files.constants(model) if name.startswith("w2") and "scale" in name)
    array = files.constants(model)[scale]
    rolled = files.with_constants(model, {scale: np.roll(array.reshape(-1), 1).reshape(array.shape)})
    error, _ = check(xverify, tmp_path, rolled, plain)
    assert error["verdict"] == "DIFFERENT"
    assert "second" in error["reason"]
    assert "are more than one step from the reference's w2" in error["reason"]


def test_a_bias_in_real_numbers_that_is_halved_is_named(xverify, tmp_path):
    plain = files.save(matrices(), tmp_path / "reference.onnx")
    model = in_blocks(matrices(), "QOperator")
    halved = files.with_constants(model, {"b1": files.constants(model)["b1"] / 2})
    error, _ = check(xverify, tmp_path, halved, plain)
    assert error["verdict"] == "DIFFERENT"
    assert "values of its bias b1 are more than rounding from the reference's b1" in error["reason"]
    assert "all of its values are × 0.5" in error["reason"]


@SLOW
@pytest.mark.parametrize("how", files.FORMATS)
def test_equalised_layers_are_not_accused(xverify, tmp_path, how):
    w = files.constants(files.network())
    factors = np.random.default_rng(1).uniform(0.3, 3, 16).astype(np.float32)
    changed = {"w3": w["w3"] / factors[:, None, None, None], "b3": w["b3"] / factors, "w4": w["w4"] * factors}
    plain = files.save(files.network(), tmp_path / "reference.onnx")
    model = files.quantised(tmp_path, how, model=files.with_constants(files.network(), changed))
    error, notes = check(xverify, tmp_path, model, plain)
    assert "one step" not in (error["reason"] or "")
    assert any("those of another layer by the inverse" in note for note in notes)
