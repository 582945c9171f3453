"""``xverify convert`` from outside, on a small model in every format, with planted faults."""

import json
from pathlib import Path

import pytest
from helpers.conversions import plant, rows, verdict

import xverify as package
from xverify.commands._main import main

SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 10))}, batch=2
)
"""

TORCH = """
from torch import nn


def build():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
"""

TENSORFLOW = """
from keras import Input, Model, layers


def build():
    x = image = Input((8, 8, 3))
    x = layers.Conv2D(8, 3, padding="same", name="0")(x)
    x = layers.BatchNormalization(epsilon=1e-5, name="1")(x)
    x = layers.ReLU()(x)
    x = layers.GlobalAveragePooling2D()(x)
    x = layers.Dense(10, name="5")(x)
    return Model(image, x)
"""

NET = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, y):
        z = self.fc(x)
        return z * y, z.softmax(-1)


def make():
    return Net()
"""

# A target whose converter loses a bias, as a faulty converter would.
LOSES_A_BIAS = """
from xverify.converters.onnx import Adapter as Right


class Adapter(Right):
    name = "loses"

    @classmethod
    def export(cls, job):
        import onnx
        from onnx import numpy_helper

        says = super().export(job)
        model = onnx.load(job.path)
        biases = [each for each in model.graph.initializer if each.name.endswith("bias") and len(each.dims) == 1]
        bias = biases[-1]
        bias.CopyFrom(numpy_helper.from_array(0 * numpy_helper.to_array(bias), bias.name))
        onnx.save(model, job.path)
        return says
"""

# A target whose converter fails when half of its file is written.
FAILS = """
from xverify.converters.onnx import Adapter as Right


class Adapter(Right):
    name = "fails"

    @classmethod
    def export(cls, job):
        job.path.write_bytes(b"half a file")
        raise RuntimeError("the converter met operator Foo")
"""


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "small"
    path.mkdir()
    for name, text in (("spec", SPEC), ("torch", TORCH), ("tensorflow", TENSORFLOW)):
        (path / f"{name}.py").write_text(text)
    return path


# -- bad requests: nothing starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["FOLDER", "here.onnx"], "here.onnx exists; --force replaces it"),
        (["FOLDER", "model.bin"], "its suffix does not tell the format; name it with --to: "),
        (["FOLDER", "model.bin", "--to", "onnxx"], "--to is 'onnxx'; did you mean 'onnx'?"),
        (["FOLDER", "model.bin", "--to", "openvino"], "the name of an OpenVINO IR ends with .xml"),
        (["FOLDER", "saved", "--to", "savedmodel", "--quantize", "float16"], "--to tflite takes float16 and int8"),
        (["FOLDER", "folder", "--to", "savedmodel", "--force"], "folder is a folder that is no TensorFlow SavedModel"),
        (["FOLDER", "missing/model.onnx"], "the folder"),
        (["FOLDER", "model.onnx", "--weights", "none.pt"], "--weights none.pt: no such file"),
        (["FOLDER", "model.onnx", "--shape", "img=2x3x8x8"], "no input is called 'img'; did you mean 'image'?"),
        (["FOLDER", "model.onnx", "--shape", "image=2x3x8x8", "--batch", "4"], "--shape gives a batch of 2"),
        (["FOLDER", "model.onnx", "--on", "openvimo"], "unknown runtime 'openvimo'; did you mean 'openvino'?"),
        (["FOLDER", "model.onnx", "--accept", "top2>1"], "unknown figure 'top2'"),
        (["PORTLESS", "model.tflite"], "is made of the model in tensorflow.py"),
        (["torch=model.py:build", "model.onnx"], "give the shape of every input"),
        (["torch=model.txt", "model.onnx"], "model.txt is no Python file; write FRAMEWORK=FILE.py:NAME"),
        (["jittor=model.py:build", "model.onnx"], "code to convert is in torch"),
        (["torch=none.py:build", "model.onnx", "--shape", "x=1x4"], "there is no file"),
    ],
)
def test_a_bad_request_is_one_line(arguments, says, folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.onnx").write_text("here")
    (tmp_path / "folder").mkdir()
    (tmp_path / "model.py").write_text(TORCH)
    portless = tmp_path / "portless"
    portless.mkdir()
    for name, text in (("spec", SPEC), ("torch", TORCH)):
        (portless / f"{name}.py").write_text(text)
    known = {"FOLDER": str(folder), "PORTLESS": str(portless)}
    before = sorted(path.name for path in tmp_path.iterdir())
    code = main(["convert", "--quiet", *(known.get(each, each) for each in arguments)])
    error = capsys.readouterr().err
    assert code == 2, error
    assert says in error
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "here.onnx").read_text() == "here"


# -- right conversions --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("m.onnx", ["--on", "onnxruntime,openvino"]),
        ("m.xml", []),
        ("m.tflite", []),
        ("saved", ["--to", "savedmodel"]),
    ],
)
def test_every_format_is_equal_to_the_model_it_was_made_of(name, more, folder, out, xverify, tmp_path):
    if name in ("m.tflite", "saved"):
        pytest.importorskip("tensorflow")
    report = tmp_path / "r.json"
    done = xverify("convert", folder, out / name, "--weights", "probe", "--json", report, *more)
    assert done.code == 0, done.out + done.err
    assert "converted, checked: " in done.out
    assert verdict(report) in ("EQUAL", "IDENTICAL")
    assert verdict(report) in done.out.splitlines()[-1]
    assert (out / name).exists()
    kept = {"m.xml": {"m.xml", "m.bin"}}.get(name, {name})
    assert {path.name for path in out.iterdir()} == kept


@pytest.mark.slow
def test_a_file_of_torch_code_and_the_weights_of_its_build(out, tmp_path):
    """In Python: two inputs, two outputs without names, and weights that build() draws, which differ in every build."""
    (tmp_path / "model.py").write_text(NET)
    result = package.convert(f"torch={tmp_path / 'model.py'}:make", out / "m.pt2", shape={"x": (5, 4), "y": (5, 3)})
    assert result.verdict == "PASS", result
    assert all(row.error.verdict in ("EQUAL", "IDENTICAL") for row in result.rows)
    assert len({tensor.output for tensor in result.rows[1].error.tensors}) == 2
    assert result.weights.source == "the weights that build() of torch makes"
    assert (out / "m.pt2").is_file()


@pytest.mark.slow
def test_a_model_whose_control_flow_depends_on_its_input_is_compiled(out, xverify, tmp_path):
    done = xverify(
        "convert", "dynamic-loop", out / "m.torchscript", "--weights", "probe", "--json", tmp_path / "r.json"
    )
    assert done.code == 0, done.out + done.err
    assert "torch.jit.script" in done.out
    assert verdict(tmp_path / "r.json") in ("EQUAL", "IDENTICAL")
    done = xverify("convert", "dynamic-loop", out / "m.onnx")
    assert done.code == 3
    assert "--to torchscript compiles its source" in done.err
    assert [path.name for path in out.iterdir()] == ["m.torchscript"]


@pytest.mark.slow
def test_lower_precision_is_judged_by_the_figures_that_the_user_names(folder, out, xverify, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    common = ("convert", folder, "--weights", "probe", "--json", tmp_path / "r.json")
    done = xverify(*common, out / "int8.onnx", "--quantize", "int8", "--accept", "sqnr>=15")
    assert done.code == 0, done.out + done.err
    assert "calibrated with 4 input cases" in done.out
    graph = onnx.load(out / "int8.onnx").graph
    assert "QuantizeLinear" in {node.op_type for node in graph.node}
    assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 4} == {onnx.TensorProto.INT8}
    assert 15 <= rows(tmp_path / "r.json")["conversion"]["figures"]["logits"]["sqnr"] < 60
    done = xverify(*common, out / "half.onnx", "--quantize", "float16", "--accept", "sqnr>=200")
    assert done.code == 1, done.out + done.err
    graph = onnx.load(out / "half.onnx").graph
    assert {tensor.data_type for tensor in graph.initializer if len(tensor.dims) == 4} == {onnx.TensorProto.FLOAT16}
    assert 50 <= rows(tmp_path / "r.json")["conversion"]["figures"]["logits"]["sqnr"] < 100


# -- faults -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_converter_that_loses_a_bias_is_caught(folder, out, xverify, tmp_path, monkeypatch):
    plant(tmp_path, monkeypatch, "loses", LOSES_A_BIAS)
    done = xverify(
        *("convert", folder, out / "m.onnx", "--to", "loses", "--weights", "probe", "--json", tmp_path / "r.json"),
        process=True,  # the names of converters are looked up once
    )
    assert done.code == 1, done.out + done.err
    found = rows(tmp_path / "r.json")
    assert found["runtime"]["error"]["verdict"] in ("EQUAL", "IDENTICAL")  # the runtime computes what the file says
    assert found["conversion"]["error"]["verdict"] == "DIFFERENT"
    assert done.out.splitlines()[-1].endswith("converted, checked: DIFFERENT")


@pytest.mark.slow
def test_a_port_with_another_epsilon_is_caught(folder, out, xverify, tmp_path):
    pytest.importorskip("tensorflow")
    (folder / "tensorflow.py").write_text(TENSORFLOW.replace("epsilon=1e-5", "epsilon=1e-3"))
    done = xverify("convert", folder, out / "m.tflite", "--weights", "probe", "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    assert verdict(tmp_path / "r.json") == "DIFFERENT"


@pytest.mark.slow
def test_a_conversion_that_fails_leaves_the_earlier_file_and_no_half_one(folder, out, xverify, tmp_path, monkeypatch):
    plant(tmp_path, monkeypatch, "fails", FAILS)
    (out / "m.onnx").write_text("the earlier file")
    done = xverify("convert", folder, out / "m.onnx", "--to", "fails", "--force", process=True)
    assert done.code == 3
    assert "the converter to ONNX file failed: RuntimeError: the converter met operator Foo" in done.err
    assert [path.name for path in out.iterdir()] == ["m.onnx"]
    assert (out / "m.onnx").read_text() == "the earlier file"


# -- subjects of a run --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_file_is_timed_beside_its_model_and_the_last_line_says_how_fast_it_is(
    no_noise, folder, out, xverify, tmp_path
):
    report = tmp_path / "r.json"
    done = xverify(
        "convert",
        folder,
        out / "m.onnx",
        *("--weights", "probe", "--time", "--warmup", 2, "--rerun", 16, "--threads", 1, "--json", report),
    )
    assert done.code == 0, done.out + done.err
    model, runtime, conversion = json.loads(report.read_text())["rows"]
    assert (model["subject"], model["framework"], model["mode"]) == (f"{folder.name} (reference)", "torch", "eager")
    assert model["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert runtime["speed"] is None
    assert model["speed"]["calls"] == conversion["speed"]["calls"] == 16
    assert [model["speed"]["counted"], conversion["speed"]["counted"]] == [True, True]
    assert model["speed"]["fps"] / conversion["speed"]["fps"] == pytest.approx(conversion["speed"]["ratio"])
    assert any(word in done.out.splitlines()[-1] for word in ("times faster", "times slower", "as fast as the model"))
    assert model["memory"]["peak_rss_mib"] > 50


def test_an_option_of_the_timing_without_time_is_refused_before_the_conversion(folder, out, xverify):
    done = xverify("convert", folder, out / "m.onnx", "--effort", "quick")
    assert done.code == 2
    assert "--effort says how the files are timed; add --time" in done.err
    assert not (out / "m.onnx").exists()


# Adapters that lose a bias: of the ONNX graph when OpenVINO reads it, and of the variables when TensorFlow converts them.
FAULTY = {
    "loses_openvino": """
from onnx import numpy_helper
from xverify.frameworks.openvino.adapter import Adapter as Right


class Adapter(Right):
    name = "loses_openvino"

    def open(self, model, properties, threads=0):
        changed = type(model)()
        changed.CopyFrom(model)
        for tensor in changed.graph.initializer:
            if tensor.name == "0.bias":
                tensor.CopyFrom(numpy_helper.from_array(0 * numpy_helper.to_array(tensor), tensor.name))
        return super().open(changed, properties, threads)
""",
    "loses_litert": """
from xverify.frameworks.litert.adapter import Adapter as Right


class Adapter(Right):
    name = "loses_litert"

    def function(self, model, example, kernels):
        bias = next(each for each in model.variables if each.path == "5/bias")
        bias.assign(0 * bias)
        return super().function(model, example, kernels)
""",
}


@pytest.mark.slow
def test_openvino_and_litert_compute_the_same_and_a_bias_that_they_lose_is_caught(xverify, folder, tmp_path):
    for module in ("openvino", "ai_edge_litert", "tensorflow"):
        pytest.importorskip(module)
    place = tmp_path / "frameworks"
    place.mkdir()
    for name, text in FAULTY.items():
        (place / f"{name}.py").write_text(text)
    subjects = ",".join(["torch:eager", "openvino", "litert", *FAULTY])
    fast = ("--warmup", 1, "--rerun", 4, "--details")
    done = xverify("run", folder, "--subjects", subjects, *fast, frameworks=place, timeout=600)
    assert done.code == 1, done.out + done.err
    for subject in ("openvino", "litert"):
        assert done.row(subject)["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        assert done.row(subject)["weights_digest"] == done.result["weights"]["digest"]
    layers = done.row("openvino")["error"]["layers"]
    assert (layers["compared"], layers["known"]) == (6, 6)
    assert done.row("litert")["error"]["layers"]["compared"] == 0
    assert "litert: no layer checked, only the outputs" in done.out
    error = done.row("loses_openvino")["error"]
    assert error["verdict"] == "DIFFERENT"
    assert [layer["layer"] for layer in error["layers"]["layers"] if layer["verdict"] == "DIFFERENT"] == ["0"]
    assert done.row("loses_litert")["error"]["verdict"] == "DIFFERENT"


def test_the_shapes_of_a_folder_can_be_changed(folder):
    from xverify.conversion.source import find
    from xverify.progress import Listener

    found = find(str(folder), {"image": (4, 3, 16, 8)}, Path("unused"), None, Listener())
    assert (found.spec.batch, found.spec.inputs["image"].shape) == (4, ("N", 3, 16, 8))
    assert found.spec.inputs["image"].sized(4) == (4, 3, 16, 8)


def test_an_operator_that_tensorflow_lite_lacks_is_named():
    from xverify.errors import Failed, Unsupported
    from xverify.frameworks.litert.tflite import _explain

    said = (
        "Could not translate MLIR to FlatBuffer.<frozen runpy>:198:1: error: 'tf.Digamma' op is neither a custom op nor a flex op\n"
        "<unknown>:0: error: 'tf.Lgamma' op is neither a custom op nor a flex op\n"
    )
    found = _explain(said)
    assert isinstance(found, Unsupported)
    assert str(found) == "TensorFlow Lite has no operator for tf.Digamma, tf.Lgamma"
    assert isinstance(_explain("something else"), Failed)
