"""``xverify convert`` of a Keras file and of a SavedModel, from outside: the file is its own reference."""

import importlib.util
import json
import zipfile

import pytest
from helpers.conversions import plant, rows, verdict

from xverify.commands._main import main

LAMBDA = {"class_name": "Functional", "config": {"layers": [{"class_name": "Lambda", "config": {}}]}}
# A target whose converter loses a bias, as a faulty converter would.
LOSES_A_BIAS = """
from xverify.converters.tflite import Adapter as Right


class Adapter(Right):
    name = "loses"

    @classmethod
    def convert(cls, job):
        bias = next(each for each in job.model.variables if each.path.endswith("bias"))
        bias.assign(0 * bias + 0.5)
        return super().convert(job)
"""


def write_keras(path, config):
    """A file that looks like a Keras file, with this configuration."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", "{}")
        archive.writestr("config.json", json.dumps(config))


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files that no framework opens."""
    monkeypatch.chdir(tmp_path)
    write_keras("plain.keras", {"class_name": "Functional", "config": {}})
    write_keras("code.keras", LAMBDA)
    (tmp_path / "broken.keras").write_bytes((tmp_path / "plain.keras").read_bytes()[:40])
    # The version, a producer, and an empty graph.
    (tmp_path / "m.onnx").write_bytes(bytes([0x08, 8, 0x12, 1, 0x78, 0x3A, 0]))
    (tmp_path / "saved").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            ["code.keras", "m.tflite"],
            2,
            "it holds a Lambda layer, which holds Python code. If you trust its author, say so",
        ),
        (["broken.keras", "m.tflite"], 2, "broken.keras: this is a zip archive, which is either damaged or truncated"),
        (["none.keras", "m.tflite"], 2, "none.keras: there is no such file"),
        (["saved", "m.tflite"], 2, "saved has no spec.py"),
        (
            ["m.onnx", "m.tflite"],
            2,
            "m.onnx is an ONNX file, and no source of a conversion: name a Keras HDF5 file, a Keras",
        ),
        (
            ["plain.keras", "m.pt2"],
            2,
            "of which no torch.export file is made; --to takes onnx, openvino, savedmodel, tflite",
        ),
        (
            ["plain.keras", "m.tflite", "--weights", "probe"],
            2,
            "--weights probe: it is for a model with code, and plain.keras",
        ),
        (["plain.keras", "m.tflite", "--exporter", "dynamo"], 2, "--exporter dynamo: it is for a model with code"),
        (["plain.keras", "plain.keras", "--to", "tflite", "--force"], 2, "plain.keras"),
        (
            ["plain.keras", "new.onnx"],
            3,
            "a conversion to an ONNX file needs tf2onnx, which is not installed: pip install tf2onnx",
        ),
        (
            ["plain.keras", "m.xml", "--quantize", "int8"],
            3,
            "in int8 needs nncf, which is not installed: pip install nncf",
        ),
    ],
)
def test_a_bad_request_of_a_file_is_one_line(arguments, code, says, files, capsys, monkeypatch):
    known = importlib.util.find_spec
    if code == 3 and not (known("tensorflow") and known("openvino")):
        pytest.skip("TensorFlow or OpenVINO is missing")

    def spec(name, *more):
        return None if name in ("tf2onnx", "nncf") else known(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", spec)
    before = {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()}
    assert main(["convert", "--quiet", *arguments]) == code
    error = capsys.readouterr().err
    assert says in error
    assert len(error.strip().splitlines()) == 1
    assert {path.name: path.read_bytes() for path in files.iterdir() if path.is_file()} == before


# -- conversions, with TensorFlow ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A Keras file, one with a Lambda layer, and a SavedModel of the first, made in a process of their own."""
    pytest.importorskip("tensorflow")
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("made")
    (folder / "make.py").write_text(MAKE)
    subprocess.run([sys.executable, "make.py"], cwd=folder, check=True, capture_output=True)
    return folder


MAKE = """
import os
os.environ["KERAS_BACKEND"] = "tensorflow"
import keras
from keras import Input, Model, layers

keras.utils.set_random_seed(0)
x = image = Input((8, 8, 3), name="image")
for each in (layers.Conv2D(8, 3, padding="same"), layers.BatchNormalization(), layers.ReLU(), layers.GlobalAveragePooling2D()):
    x = each(x)
model = Model(image, layers.Dense(10, name="logits")(x))
model.save("m.keras")
model.export("saved", verbose=False)
Model(image, layers.Lambda(lambda y: 2 * y)(model(image))).save("code.keras")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "name", "more"),
    [
        ("m.keras", "m.tflite", []),
        ("m.keras", "half.tflite", ["--quantize", "float16"]),
        ("m.keras", "own", ["--to", "savedmodel", "--batch", "3"]),
        ("m.keras", "m.xml", []),
        ("saved", "m.tflite", ["--shape", "image=1x8x8x3"]),
        ("code.keras", "m.tflite", ["--trust"]),
    ],
)
def test_what_is_made_of_a_file_is_equal_to_it(source, name, more, made, out, xverify, tmp_path):
    if name.endswith(".xml"):
        pytest.importorskip("openvino")
    report = tmp_path / "r.json"
    done = xverify("convert", made / source, out / name, "--json", report, "--details", *more)
    assert done.code == 0, done.out + done.err
    assert verdict(report) in ("EQUAL", "IDENTICAL")
    assert done.out.splitlines()[-1].startswith(f"PASS {out / name}: converted, checked: {verdict(report)}")
    assert f"{source} was converted by " in done.out
    assert {path.name for path in out.iterdir()} == {name, *(["m.bin"] if name == "m.xml" else [])}
    asked = json.loads(report.read_text())["settings"]["asked"]
    assert asked["options"]["against"] == [str(made / source)]
    batch = {"own": 3, "saved": 1}.get(name if name == "own" else source, 2)
    assert rows(report)["conversion"]["batch"] == batch


@pytest.mark.slow
def test_a_bias_that_a_converter_of_a_file_changes_is_caught(made, out, xverify, tmp_path, monkeypatch):
    plant(tmp_path, monkeypatch, "loses", LOSES_A_BIAS)
    report = tmp_path / "r.json"
    done = xverify("convert", made / "m.keras", out / "m.tflite", "--to", "loses", "--json", report, process=True)
    assert done.code == 1, done.out + done.err
    assert verdict(report) == "DIFFERENT"
    assert (out / "m.tflite").exists()


@pytest.mark.slow
def test_int8_of_a_file_is_calibrated_with_the_cases_that_it_is_checked_on(made, out, xverify, tmp_path):
    report = tmp_path / "r.json"
    common = (
        "convert",
        made / "m.keras",
        out / "m.tflite",
        "--quantize",
        "int8",
        "--cases",
        8,
        "--json",
        report,
        "--force",
    )
    done = xverify(*common, "--accept", "sqnr>=15")
    assert done.code == 0, done.out + done.err
    assert "calibrated with 8 input cases" in done.out
    found = rows(report)["conversion"]
    assert 15 <= found["figures"]["logits"]["sqnr"] < 60
    assert json.loads(report.read_text())["inputs"]["cases"] == 8
    done = xverify(*common, "--accept", "sqnr>=200")
    assert done.code == 1, done.out + done.err


@pytest.mark.slow
def test_int8_of_openvino_is_quantised_by_nncf(made, out, xverify, tmp_path):
    for module, why in (("openvino", "OpenVINO"), ("nncf", "nncf")):
        pytest.importorskip(module, reason=f"{why} is not installed")
    report = tmp_path / "r.json"
    done = xverify(
        *("convert", made / "m.keras", out / "m.xml", "--quantize", "int8", "--accept", "sqnr>=15", "--json", report)
    )
    assert done.code == 0, done.out + done.err
    assert "quantised with nncf.quantize" in done.out
    assert 15 <= rows(report)["conversion"]["figures"]["logits"]["sqnr"] < 60
    assert "FakeQuantize" in (out / "m.xml").read_text()


@pytest.mark.slow
def test_a_batch_that_the_file_does_not_take_is_refused(made, out, xverify):
    done = xverify("convert", made / "m.keras", out / "m.tflite", "--batch", 4, "--shape", "image=1x8x8x3")
    assert done.code == 2
    assert "--batch 4: the input image of m.keras is 1x8x8x3" in done.err
    done = xverify("convert", made / "m.keras", out / "m.tflite", "--shape", "img=1x8x8x3")
    assert done.code == 2
    assert "no input is called 'img'" in done.err
    assert list(out.iterdir()) == []
