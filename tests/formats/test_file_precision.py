"""The precision that each format tells of its files."""

import pytest
from helpers.modelfiles import Opened, file

from xverify.messages.files import ReadPrecision

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    ("maker", "name", "says"),
    [
        ("TORCH", "model.torchscript", "float32"),
        ("TORCH", "half.torchscript", "float16"),
        ("TORCH", "model.pt2", "float32"),
        ("TORCH", "half.pt2", "float16"),
        ("OPENVINO", "model.xml", "float32"),
        ("OPENVINO", "half.xml", "float16 weights, computed in float32"),
        ("TENSORFLOW", "saved", "float32"),
        ("TENSORFLOW", "model.keras", "float32"),
        ("TENSORFLOW", "mixed.keras", "float32 weights, computed in float16"),
        ("TENSORFLOW", "model.h5", "float32"),
        ("TENSORFLOW", "model.tflite", "float32"),
        ("TENSORFLOW", "float16.tflite", "float16 weights, computed in float32"),
        (
            "TENSORFLOW",
            "dynamic.tflite",
            "mixed: 1 of 2 layers int8 dynamic, per channel, weights and int8 activations",
        ),
        ("TENSORFLOW", "static.tflite", "int8 static"),
    ],
)
def test_a_format_tells_the_precision_of_its_file(tmp_path, maker, name, says):
    with Opened(file(maker, name), tmp_path / "worker") as opened:
        opened.build()
        found = opened.worker.ask(ReadPrecision())
    assert found.says.startswith(says)
    assert found.is_narrow == (says != "float32")
    if "int8" in says:
        assert "weights and int8 activations" in found.says
