"""Constant buffers of torch.py that a port computes itself: the message says what to write, and what is written then is EQUAL."""

import pytest
from helpers.ownsteps import folder

pytest.importorskip("torch")
pytest.importorskip("tensorflow")

pytestmark = pytest.mark.slow

# A network whose two convolutions blur the image first, by a filter of constants.
BLUR = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW")},
    outputs={"y": TensorSpec(("N", 2, 6, 6), layout="NCHW")},
    batch=3,
)
""",
    "torch": """
import torch
import torch.nn.functional as F
from torch import nn

class Blurred(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 2)
        taps = torch.tensor([1.0, 3.0, 3.0, 1.0])
        self.register_buffer("kernel", torch.outer(taps, taps) / 64)
    def forward(self, x):
        kernel = self.kernel.expand(x.shape[1], 1, -1, -1)
        return self.conv(F.conv2d(F.pad(x, (1, 2, 1, 2)), kernel, groups=x.shape[1]))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Blurred(3, 4), Blurred(4, 2)
    def forward(self, image):
        return self.b(torch.relu(self.a(image)))
build = Net
""",
    "tensorflow": """
import keras, numpy as np
import tensorflow as tf
from keras.layers import Conv2D

TAPS = np.array([1, 3, 3, 1], "float32")
KERNEL = np.outer(TAPS, TAPS)[:, :, None, None] / 64

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = Conv2D(4, 2, name="a.conv"), Conv2D(2, 2, name="b.conv")
    def call(self, image):
        x = image
        for conv in (self.a, self.b):
            x = tf.pad(x, ((0, 0), (1, 2), (1, 2), (0, 0)))
            x = tf.nn.depthwise_conv2d(x, np.repeat(KERNEL, x.shape[-1], 2), (1, 1, 1, 1), "VALID")
            x = conv(x) if conv is self.b else tf.nn.relu(conv(x))
        return x

def build():
    model = Net()
    model(tf.zeros((1, 8, 8, 3)))
    return model
""",
}
# A network that takes the mean of the data from its inputs.
CENTRED = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 4))}, outputs={"y": TensorSpec(("N", 3))}, batch=8)
""",
    "torch": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406, 0.5]))
    def forward(self, x):
        return self.fc(x - self.mean)
build = Net
""",
    "tensorflow": """
import keras

class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.fc = keras.layers.Dense(3, name="fc")
        self.fc.build((None, 4))
        self.built = True
    def call(self, x):
        return self.fc(x - [0.485, 0.456, 0.406, 0.5])
build = Net
""",
}
ONE = (
    "it is a buffer of torch.py: where the port computes it itself, register it there with persistent=False, or write "
    'absent = ["mean"] under [tensorflow] in names.toml'
)
TWO = (
    "both are buffers of torch.py: where the port computes them itself, register them there with persistent=False, or write "
    'absent = ["a.kernel", "b.kernel"] under [tensorflow] in names.toml'
)


@pytest.mark.parametrize(
    ("files", "names", "says", "register"),
    [
        (BLUR, "2 unexpected (a.kernel, b.kernel)", TWO, "torch.outer(taps, taps) / 64"),
        (CENTRED, "1 unexpected (mean)", ONE, "torch.tensor([0.485, 0.456, 0.406, 0.5])"),
    ],
    ids=["filters", "one mean"],
)
def test_buffers_that_a_port_computes_itself_are_told_and_then_equal(xverify, tmp_path, files, names, says, register):
    subjects = ("--no-timing", "--subjects", "torch:eager,tensorflow:eager")
    done = xverify("run", folder(tmp_path / "saved", files), *subjects)
    assert done.code == 3, done.out + done.err
    assert done.row("torch:eager")["error"]["verdict"] == "IDENTICAL"
    row = done.row("tensorflow:eager")
    assert row["status"] == "failed"
    assert row["reason"] == f"the weights do not fit the model: {names}; {says}"
    constant = (register, f"{register}, persistent=False")
    done = xverify("run", folder(tmp_path / "constant", files, torch=constant), *subjects)
    assert done.code == 0, done.out + done.err
    assert done.row("tensorflow:eager")["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    other = constant[1].replace("/ 64", "/ 63").replace("0.456", "0.46")
    done = xverify("run", folder(tmp_path / "other", files, torch=(register, other)), *subjects)
    assert done.row("tensorflow:eager")["error"]["verdict"] == "DIFFERENT"


def test_a_parameter_without_a_place_is_no_buffer(xverify, tmp_path):
    mean = 'self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406, 0.5]))'
    parameter = "self.mean = nn.Parameter(torch.tensor([0.485, 0.456, 0.406, 0.5]))"
    port = folder(tmp_path / "parameter", CENTRED, torch=(mean, parameter))
    done = xverify("run", port, "--no-timing", "--subjects", "tensorflow:eager")
    assert done.row("tensorflow:eager")["reason"] == "the weights do not fit the model: 1 unexpected (mean)"
