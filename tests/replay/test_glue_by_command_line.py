"""Glue code that is explained in a run of the command line, with real frameworks."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.glueports import FUSED, PROJECTED  # noqa: E402
from helpers.replayedports import model  # noqa: E402

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=2, inputs={"x": TensorSpec(("N", 6, 16))}, outputs={"y": TensorSpec(("N", 6, 16))})
"""


@pytest.mark.parametrize(
    ("port", "code", "says"),
    [
        (model(PROJECTED, FUSED), 0, ""),
        (
            model(PROJECTED, FUSED.replace("is_causal=True", "is_causal=True, scale=0.25")),
            1,
            "scales its attention by 1/4; the reference by 0.5",
        ),
    ],
)
def test_glue_code_by_the_command_line(xverify, tmp_path, port, code, says):
    folder = tmp_path / "folder"
    folder.mkdir()
    for name, text in (("spec", SPEC), ("torch", model(PROJECTED, FUSED)), ("torch_port", port)):
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", "torch:eager,torch_port:eager", "--warmup", 0, "--rerun", 1, "--layers")
    error = done.row("torch_port:eager")["error"]
    assert done.code == code, done.out
    found = [each["glue"] for each in error["layers"]["layers"] if each["glue"]]
    if says:
        assert says in error["reason"]
        assert says in " ".join(done.out.split())
        assert len(found) == 1
    else:
        assert found == []


IMAGES = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=2,
    inputs={"x": TensorSpec(("N", 8, 6, 6), layout="NCHW")},
    outputs={"y": TensorSpec(("N", 8, 6, 6), layout="NCHW")},
)
"""
KERAS = """
import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = keras.layers.Conv2D(8, 1, name="a"), keras.layers.Conv2D(8, 1, name="b")

    def call(self, x):
        return self.b(tf.nn.avg_pool2d(self.a(x), 3, 1, "SAME"))


def build():
    model = Net()
    model(tf.zeros((1, 6, 6, 8)))
    return model
"""


def test_average_pooling_of_tensorflow_does_not_count_its_padding(xverify, tmp_path):
    pytest.importorskip("tensorflow")
    folder = tmp_path / "folder"
    folder.mkdir()
    layers = "self.a, self.b = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)"
    reference = model(layers, "return self.b(F.avg_pool2d(self.a(x), 3, 1, padding=1))")
    for name, text in (("spec", IMAGES), ("torch", reference), ("tensorflow", KERAS)):
        (folder / f"{name}.py").write_text(text)
    done = xverify("run", folder, "--subjects", "torch:eager,tensorflow:eager", "--warmup", 0, "--rerun", 1)
    assert done.code == 1, done.out
    assert "the port leaves out the padding in its averages" in done.row("tensorflow:eager")["error"]["reason"]
