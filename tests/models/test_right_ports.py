"""Right ports in the idioms of Keras and Jittor draw no explanation and no accusation, from the command line."""

import pytest

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=4,
    inputs={"image": TensorSpec(("N", 3, 12, 12), layout="NCHW"), "row": TensorSpec(("N", 6))},
    outputs={"scores": TensorSpec(("N", 5)), "shares": TensorSpec(("N", 4))},
)
"""

TORCH = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 1, 1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.LayerNorm(8)
        self.lstm = nn.LSTM(6, 8, batch_first=True)
        self.shared = nn.Linear(8, 8)
        self.act = nn.GELU()
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(8, 5)
        self.share = nn.Linear(16, 4)

    def forward(self, image, row):
        x = F.silu(self.conv1(image))
        x = self.relu(self.bn(self.conv2(x)) + x)
        x = self.norm(self.pool(x).flatten(1))
        y = F.relu(self.lstm(row[:, None] * torch.arange(1, 4)[None, :, None] / 3)[0])[:, -1]
        x, y = self.act(self.shared(x)), self.act(self.shared(y))
        scores = self.fc(self.drop(self.relu(x + y)))
        return scores, self.share(torch.cat([x, y], 1)).softmax(-1)


def build():
    return Net()
"""

KERAS = """
import keras
from keras import layers, ops


def build():
    image, row = keras.Input((12, 12, 3)), keras.Input((6,))
    x = layers.ZeroPadding2D(1)(image)
    x = layers.Conv2D(8, 3, 2, activation="silu", name="conv1")(x)
    y = layers.Conv2D(8, 3, padding="same", name="conv2")(x)
    y = layers.BatchNormalization(epsilon=1e-5, name="bn")(y)
    x = layers.Activation("relu")(layers.Add()([y, x]))
    x = layers.GlobalAveragePooling2D(name="pool")(x)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(x)
    steps = layers.RepeatVector(3)(row) * ops.reshape(ops.arange(1, 4, dtype="float32") / 3, (1, 3, 1))
    y = layers.LSTM(8, return_sequences=True, name="lstm")(steps)
    y = layers.ReLU()(y)[:, -1]
    shared = layers.Dense(8, activation="gelu", name="shared")
    y = shared(y)
    x = shared(x)
    z = layers.Dropout(0.5)(layers.ReLU()(layers.Add()([x, y])))
    scores = layers.Dense(5, name="fc")(z)
    shares = layers.Dense(4, activation="softmax", name="share")(layers.Concatenate()([x, y]))
    return keras.Model([image, row], [scores, shares])
"""

JITTOR = """
import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 8, 3, 1, 1)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.norm = nn.LayerNorm(8)
        self.lstm = nn.LSTM(6, 8)
        self.shared = nn.Linear(8, 8)
        self.fc = nn.Linear(8, 5)
        self.share = nn.Linear(16, 4)

    def execute(self, image, row):
        x = nn.silu(self.conv1(image))
        x = nn.relu(self.bn(self.conv2(x)) + x)
        x = self.norm(x.mean((2, 3)))
        steps = row.unsqueeze(0) * (jt.arange(1, 4).float32() / 3).reshape(3, 1, 1)
        y = nn.relu(self.lstm(steps)[0])[-1]
        y = nn.gelu(self.shared(y))
        x = nn.gelu(self.shared(x))
        scores = self.fc(self.relu(x + y))
        return scores, nn.softmax(self.share(jt.concat([x, y], 1)), -1)


def build():
    return Net()
"""


@pytest.mark.parametrize(
    ("framework", "subject", "text"), [("tensorflow", "tensorflow:graph", KERAS), ("jittor", "jittor", JITTOR)]
)
def test_the_idioms_of_a_framework_are_right(xverify, tmp_path, framework, subject, text):
    for name, content in (("spec", SPEC), ("torch", TORCH), (framework, text)):
        (tmp_path / f"{name}.py").write_text(content)
    done = xverify(
        "run", tmp_path, "--subjects", f"torch:eager,{subject}", "--warmup", 1, "--rerun", 4, "--cases", 2, timeout=900
    )
    error = done.row(subject)["error"]
    assert (done.code, error["verdict"]) == (0, "EQUAL"), done.out
    assert not [layer for layer in error["layers"]["layers"] if layer["explanation"] or layer["verdict"] != "EQUAL"]
    notes = " ".join(error["layers"]["notes"])
    assert "names.toml" not in notes
    assert ("the port calls shared in another order" in notes) == (framework == "jittor")
    if framework == "tensorflow":
        for layer in ("conv1", "shared", "share"):
            assert f"{layer} was judged together with the activation" in notes
