"""The first node of a wrong file that computes something else is named in every format, and a right file is EQUAL."""

import json

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

from conftest import cli
from helpers import faultyfiles

SLOPE = "and the reference has 0.1"
# Name of the test -> (maker, end of the file's name, sentence about another slope, sentence about another pooling, options)
FORMATS = {
    "tflite": ("KERAS", ".tflite", f"/act_1/LeakyRelu' (module act_1): alpha is 0.2, {SLOPE}", "AVERAGE_POOL_2D", ()),
    "pt2": ("TORCH", ".pt2", f"'/act/leaky_relu' (module act): negative_slope is 0.2, {SLOPE}", "count_include_pad is False", ()),
    "torchscript": ("TORCH", ".torchscript", f"negative_slope is 0.2, {SLOPE}", "aten::avg_pool2d", ("--shape", "x=2x3x12x12")),
    "keras": ("KERAS", ".keras", f"LeakyReLU 'act': negative_slope is 0.2, {SLOPE}", "AveragePooling2D 'pool': strides", ()),
    "openvino-ir": ("OPENVINO", ".xml", "PRelu '/act/LeakyRelu' (module act)", "AvgPool '/pool/AveragePool'", ()),
    "savedmodel": ("KERAS", "_saved", f"alpha is 0.2, {SLOPE}", "/AvgPool'", ()),
}  # fmt: skip


def checked(folder, files, reference, options=()):
    done = cli(folder, "check", *files, "--against", reference, "--json", folder / "r.json", *options, timeout=900)
    rows = json.loads((folder / "r.json").read_text())["rows"]
    errors = {row["subject"]: row["error"] for row in rows if row["task"] == "conversion"}
    return done, [errors[file.name] for file in files]


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_the_first_faulty_node_of_a_file_is_named_and_a_right_file_is_equal(tmp_path, name):
    maker, end, slope, pool, options = FORMATS[name]
    files = [faultyfiles.made(maker) / f"{each}{end}" for each in ("slope", "pool", "right")]
    done, errors = checked(tmp_path, files, files[-1], options)
    assert done.code == 1, done.out + done.err
    for error, says in zip(errors, (slope, pool)):
        assert error["verdict"] == "DIFFERENT"
        assert "the first value that differs is that of " in error["reason"]
        assert says in error["reason"]
    assert errors[2]["verdict"] in ("IDENTICAL", "EQUAL")


@pytest.mark.slow
@pytest.mark.parametrize(("end", "says"), [(".keras", "alpha is 0.2"), (".onnx", "")], ids=["keras", "onnx"])
def test_the_faulty_node_is_named_against_a_file_of_another_format(tmp_path, end, says):
    mine, theirs = {".keras": ("KERAS", ".tflite"), ".onnx": ("TORCH", ".pt2")}[end]
    folder = faultyfiles.made(mine)
    done, (wrong, right) = checked(
        tmp_path, [folder / f"slope{theirs}", folder / f"right{theirs}"], folder / f"right{end}"
    )
    assert done.code == 1, done.out + done.err
    assert "leaky" in wrong["reason"].lower().partition("the first value that differs is that of ")[2][:60]
    assert says in wrong["reason"]
    assert "dw/kernel" not in wrong["reason"]  # it is folded with no batch norm, and is that of the reference
    assert right["verdict"] in ("IDENTICAL", "EQUAL")


GELU, EPSILON = "approximate is tanh, and the reference has none", "is 0.1, and the reference has 0.001"
# Name of the test -> (maker, name and end of the wrong file, what names its node, what names its setting)
SEVERAL = {
    "pt2": ("TORCH", "tanh", ".pt2", "aten.gelu", GELU), "torchscript": ("TORCH", "tanh", ".torchscript", "aten::gelu", GELU),
    "keras": ("KERAS", "epsilon", ".keras", "LayerNormalization 'norm'", EPSILON),
    "savedmodel": ("KERAS", "epsilon", "_saved", "norm_1/", EPSILON),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SEVERAL)
def test_the_faulty_node_is_named_where_nodes_return_and_take_several_tensors(tmp_path, name):
    maker, faulty, end, node, setting = SEVERAL[name]
    files = [faultyfiles.made(maker) / f"{each}{end}" for each in (faulty, "sequences")]
    options = ("--shape", "ids=2x7") if end == ".torchscript" else ()
    done, (wrong, right) = checked(tmp_path, files, files[1], options)
    assert done.code == 1, done.out + done.err
    told = wrong["reason"].partition("the first value that differs is that of ")[2]
    assert node in told[:80]
    assert setting in told
    assert right["verdict"] in ("IDENTICAL", "EQUAL")


@pytest.mark.slow
def test_whole_numbers_of_a_quantised_file_are_compared_with_the_real_ones_of_its_reference(tmp_path):
    folder = faultyfiles.made("KERAS")
    files, accepted = [folder / f"{name}_whole.tflite" for name in ("right", "steep")], "sqnr>=10,cosine>=0.9"
    done, (right,) = checked(tmp_path, files[:1], folder / "right.keras", ("--accept", accepted))
    assert done.code == 0, done.out + done.err
    assert "the first value that differs" not in (right["reason"] or "")
    done, (wrong,) = checked(tmp_path, files[1:], folder / "right.keras")
    assert wrong["verdict"] == "DIFFERENT"
    assert "the first value that differs is that of LEAKY_RELU" in wrong["reason"]
    done = cli(tmp_path, "check", files[0], "--json", tmp_path / "alone.json")
    (row,) = json.loads((tmp_path / "alone.json").read_text())["rows"]
    assert row["error"]["verdict"] in ("IDENTICAL", "EQUAL"), done.out + done.err
    assert row["error"]["layers"]["compared"] == row["error"]["layers"]["known"]


@pytest.mark.slow
def test_one_flipped_bit_of_a_quantised_weight_is_different_although_its_effect_is_within_the_noise(tmp_path):
    """The right file, which has the same steps, is EQUAL in the test above."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    folder = faultyfiles.made("KERAS")
    stored = (folder / "right_whole.tflite").read_bytes()
    interpreter = litert.Interpreter(str(folder / "right_whole.tflite"))
    names = [each["index"] for each in interpreter.get_tensor_details() if each["name"].endswith("/depthwise")]
    weight = interpreter.get_tensor(*names).tobytes()  # with no norm folded into it
    assert stored.count(weight) == 1
    place = stored.index(weight) + len(weight) // 2
    (tmp_path / "bit.tflite").write_bytes(stored[:place] + bytes([stored[place] ^ 0x40]) + stored[place + 1 :])
    done, (wrong,) = checked(tmp_path, [tmp_path / "bit.tflite"], folder / "right.keras")
    assert done.code == 1, done.out + done.err
    assert wrong["verdict"] == "DIFFERENT"
    assert "values are more than 2 steps away from the reference's; the worst" in wrong["reason"]
