"""Small models in several frameworks, and their checkpoints of torch, for tests that carry optimizer state."""

from __future__ import annotations

from pathlib import Path

FILES = {
    "spec.py": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=8, inputs={"x": TensorSpec(("N", 3, 5, 5), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 4))}
)
""",
    "torch.py": """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b, self.c = nn.Conv2d(3, 6, 5), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        x = torch.tanh(self.conv(x)).flatten(1)
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))


build = Net
""",
    "jittor.py": """
import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b, self.c = nn.Conv2d(3, 6, 5), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def execute(self, x):
        x = jt.flatten(jt.tanh(self.conv(x)), 1)
        return self.c(jt.tanh(self.b(jt.tanh(self.a(x)))))


build = Net
""",
    "paddle.py": """
import paddle
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.conv, self.a, self.b, self.c = nn.Conv2D(3, 6, 5), nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        x = paddle.flatten(paddle.tanh(self.conv(x)), 1)
        return self.c(paddle.tanh(self.b(paddle.tanh(self.a(x)))))


build = Net
""",
    "tensorflow.py": """
from keras import Input, Model, layers


def build():
    inputs = Input((5, 5, 3), name="x")
    x = layers.Flatten()(layers.Conv2D(6, 5, activation="tanh", name="conv")(inputs))
    x = layers.Dense(6, activation="tanh", name="b")(layers.Dense(6, activation="tanh", name="a")(x))
    return Model(inputs, layers.Dense(4, name="c")(x))
""",
    "flax.py": """
import jax.numpy as jnp
from flax import nnx


class Net(nnx.Module):
    def __init__(self, rngs):
        self.conv = nnx.Conv(3, 6, (5, 5), padding="VALID", rngs=rngs)
        self.a, self.b, self.c = (nnx.Linear(6, n, rngs=rngs) for n in (6, 6, 4))

    def __call__(self, x):
        x = jnp.tanh(self.conv(x)).reshape((x.shape[0], -1))
        return self.c(jnp.tanh(self.b(jnp.tanh(self.a(x)))))


def build():
    return Net(nnx.Rngs(0))
""",
}
# An LSTM, a GRU and a batch norm, which has running statistics.
RECURRENT = {
    "spec.py": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=8, inputs={"x": TensorSpec(("N", 7, 5))}, outputs={"logits": TensorSpec(("N", 4))})
""",
    "torch.py": """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6, batch_first=True), nn.GRU(6, 3, batch_first=True)
        self.norm, self.c = nn.BatchNorm1d(3), nn.Linear(3, 4)

    def forward(self, x):
        return self.c(self.norm(self.gru(self.lstm(x)[0])[0].mean(1)))


build = Net
""",
    "jittor.py": """
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6), nn.GRU(6, 3)
        self.norm, self.c = nn.BatchNorm1d(3), nn.Linear(3, 4)

    def execute(self, x):
        return self.c(self.norm(self.gru(self.lstm(x.permute(1, 0, 2))[0])[0].mean(0)))


build = Net
""",
    "paddle.py": """
from paddle import nn


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.lstm, self.gru = nn.LSTM(5, 6), nn.GRU(6, 3)
        self.norm, self.c = nn.BatchNorm1D(3), nn.Linear(3, 4)

    def forward(self, x):
        return self.c(self.norm(self.gru(self.lstm(x)[0])[0].mean(1)))


build = Net
""",
    "tensorflow.py": """
from keras import Input, Model, layers


def build():
    inputs = Input((7, 5), name="x")
    x = layers.GRU(3, return_sequences=True, name="gru")(layers.LSTM(6, return_sequences=True, name="lstm")(inputs))
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name="norm")(layers.GlobalAveragePooling1D()(x))
    return Model(inputs, layers.Dense(4, name="c")(x))
""",
}
STEPS = 20


def folder(place: Path, files: dict[str, str] = FILES) -> Path:
    """Write the model folder. files: FILES or RECURRENT."""
    made = place / "port"
    made.mkdir()
    for name, text in files.items():
        (made / name).write_text(text)
    return made


def checkpoint(place: Path, make, steps: int = STEPS, grouped: bool = False, files: dict[str, str] = FILES):
    """Train the model of torch, and write its checkpoint. make: an optimizer of parameters. Returns (model, optimizer, path)."""
    import torch

    space: dict = {}
    exec(files["torch.py"], space)
    torch.manual_seed(3)
    model = space["build"]()
    shape = (8, 3, 5, 5) if files is FILES else (8, 7, 5)
    parameters = model.parameters()
    if grouped:
        named = dict(model.named_parameters())
        biases = [each for name, each in named.items() if name.endswith("bias")]
        parameters = [
            {"params": [each for name, each in named.items() if name.endswith("weight")]},
            {"params": biases, "weight_decay": 0.0},
        ]
    optimizer = make(parameters)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(shape)), torch.randint(4, (8,)))
        loss.backward()
        optimizer.step()
    path = place / "checkpoint.pt"
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}, path)
    return model, optimizer, path
