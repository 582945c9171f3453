"""``xverify check`` on files that tools for language models write: every node of right ones is judged, faults are named."""

import json

import pytest
from helpers import languagefiles as files

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The two models as they are, optimised, and with 4 bits."""
    place = files.written(tmp_path_factory.mktemp("language"))
    for model in files.MODELS:
        for name, settings in files.OPTIMISED.items():
            files.optimised(place / f"{model}.onnx", place / f"{model} {name}.onnx", **settings)
        for name, settings in files.INT4.items():
            files.int4(place / f"{model} float32.onnx", place / f"{model} {name}.onnx", **settings)
    files.grouped(place / "grouped.onnx")
    files.grouped(place / "grouped float16.onnx", half=True)
    files.int4(place / "grouped.onnx", place / "grouped int4.onnx", **files.INT4["symmetric"])
    return place


def checked(xverify, tmp_path, file, reference):
    """The exit code, the rows by question, and what was printed."""
    done = xverify("check", file, "--against", reference, "--json", tmp_path / "r.json")
    assert "Traceback" not in done.err, done.err
    rows = {row["task"]: row for row in json.loads((tmp_path / "r.json").read_text())["rows"]}
    return done.code, rows, done.out + done.err


RIGHT = [f"{model} {name}" for model in files.MODELS for name in (*files.OPTIMISED, *files.INT4)]
RIGHT += ["grouped int4", "grouped float16"]


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_file_is_equal_and_every_node_is_judged(xverify, tmp_path, folder, name):
    code, rows, text = checked(xverify, tmp_path, folder / f"{name}.onnx", folder / f"{name.split()[0]}.onnx")
    assert code == 0, text
    assert {row["error"]["verdict"] for row in rows.values()} == {"EQUAL"}, text
    nodes = rows["runtime"]["error"]["layers"]
    assert nodes["compared"] == nodes["known"] > 5
    assert "layers" not in (rows["runtime"]["error"]["reason"] or "")  # a fault would have shown in each of them


def exchanged(array):
    """The first two blocks of every row in the place of each other."""
    return array[:, [1, 0, *range(2, array.shape[1])]]


ATTRIBUTES = {  # name -> the right file, the operator, and the change
    "num_heads is 2": ("bert float32", "Attention", files.attribute("num_heads", 2)),
    "scale is 0.26": ("bert float32", "Attention", files.attribute("scale", 0.26)),
    "unidirectional is 1": ("bert float32", "Attention", files.attribute("unidirectional", 1)),
    "epsilon is 0.001": ("bert float32", "SkipLayerNormalization", files.attribute("epsilon", 1e-3)),
    "epsilon is 0.002": ("llama float32", "SkipSimplifiedLayerNormalization", files.attribute("epsilon", 2e-3)),
    "rotary_interleaved is 1": ("grouped", "GroupQueryAttention", files.attribute("rotary_interleaved", 1)),
    "scale is 0.27": ("grouped", "GroupQueryAttention", files.attribute("scale", 0.27)),
    "scale is 0.28": ("grouped float16", "GroupQueryAttention", files.attribute("scale", 0.28)),
    "epsilon is 0.1": ("grouped float16", "SkipSimplifiedLayerNormalization", files.attribute("epsilon", 0.1)),
}


@pytest.mark.parametrize("says", ATTRIBUTES)
def test_another_attribute_is_named_with_its_node(xverify, tmp_path, folder, says):
    name, op, change = ATTRIBUTES[says]
    node = files.changed(folder / f"{name}.onnx", tmp_path / "wrong.onnx", op, change)
    reference = folder / f"{name.removesuffix(' float16')}.onnx"  # of the file in float16, the one in float32
    code, rows, text = checked(xverify, tmp_path, tmp_path / "wrong.onnx", reference)
    assert code == 1, text
    assert rows["conversion"]["error"]["verdict"] == "DIFFERENT"
    assert f"{op} {node!r}" in rows["conversion"]["error"]["reason"]
    assert f"{says}, and the reference has" in rows["conversion"]["error"]["reason"]


WEIGHTS = {  # name -> the right file, the operator, the change, and what the reason says
    "scales": ("bert zero points", "MatMulNBits", files.array(2, exchanged), "more than one step"),
    "scales of llama": ("llama zero points", "MatMulNBits", files.array(2, exchanged), "more than one step"),
    "zero points": ("bert zero points", "MatMulNBits", files.array(3, lambda x: x ^ 1), "more than one step"),
    "zero points of llama": ("llama zero points", "MatMulNBits", files.array(3, lambda x: x ^ 2), "more than one step"),
    "groups": ("llama symmetric", "MatMulNBits", files.array(1, exchanged), "more than one step"),
    "scales of a table": ("llama tables", "GatherBlockQuantized", files.array(2, exchanged), "more than one step"),
}


@pytest.mark.parametrize("fault", WEIGHTS)
def test_a_wrong_weight_is_named_with_its_node(xverify, tmp_path, folder, fault):
    name, op, change, says = WEIGHTS[fault]
    node = files.changed(folder / f"{name}.onnx", tmp_path / "wrong.onnx", op, change)
    code, rows, text = checked(xverify, tmp_path, tmp_path / "wrong.onnx", folder / f"{name.split()[0]} float32.onnx")
    assert code == 1, text
    assert rows["conversion"]["error"]["verdict"] == "DIFFERENT"
    assert node in rows["conversion"]["error"]["reason"]
    assert says in rows["conversion"]["error"]["reason"]
