"""Models with masks and other exact arithmetic, right and wrong: ONNX files, ports of attention, and training steps."""

import numpy as np

LOWEST = float(np.finfo(np.float32).min)


def _save(path, nodes, inputs, output, constants):
    import onnx
    from onnx import helper, numpy_helper

    info = helper.make_tensor_value_info
    arrays = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", [info(*each) for each in inputs], [info(*output)], arrays)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(made)
    onnx.save(made, path)
    return path


def _weights(seed, *shape, size=0.3):
    return (np.random.default_rng(seed).standard_normal(shape) * size).astype(np.float32)


def attention(path, seed=10, low=LOWEST):
    """Hugging Face's mask, (1 - mask) * low, in one attention. seed: of the query's and the key's weights."""
    from onnx import TensorProto as T
    from onnx import helper

    node = helper.make_node
    nodes = [
        node("Unsqueeze", ["mask", "axis"], ["m3"]), node("Cast", ["m3"], ["m"], to=T.FLOAT),
        node("Sub", ["one", "m"], ["inverted"]), node("Mul", ["inverted", "low"], ["bias"]),
        node("Gather", ["table", "ids"], ["x"]), node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"]),
        node("Add", ["s", "bias"], ["masked"]), node("Softmax", ["masked"], ["y"], axis=-1),
    ]  # fmt: skip
    constants = {
        "table": _weights(1, 50, 16, size=1.0), "wq": _weights(seed, 16, 16), "wk": _weights(seed + 1, 16, 16),
        "one": np.float32(1), "low": np.float32(low), "axis": np.array([1]),
    }  # fmt: skip
    inputs = [("ids", T.INT64, [2, 9]), ("mask", T.INT64, [2, 9])]
    return _save(path, nodes, inputs, ("y", T.FLOAT, [2, 9, 9]), constants)


def bert(path, low=-10000.0, gelu="none", eps=1e-12, seed=0, bias=True):
    """A layer of BERT with the mask (1 - mask) * low. seed: of its query's and key's weights. bias: whether its query has one."""
    from onnx import TensorProto as T
    from onnx import helper

    node, width = helper.make_node, 16
    nodes = [
        node("Gather", ["table", "ids"], ["x0"]), node("LayerNormalization", ["x0", "g0", "h0"], ["x"], epsilon=eps),
        node("Unsqueeze", ["mask", "axis"], ["m3"]), node("Cast", ["m3"], ["m"], to=T.FLOAT),
        node("Sub", ["one", "m"], ["inverted"]), node("Mul", ["inverted", "low"], ["mask_bias"]),
    ]  # fmt: skip
    sizes = {"q": (16, 16), "k": (16, 16), "v": (16, 16), "o": (16, 16), "up": (16, 32), "down": (32, 16)}
    constants = {
        "table": _weights(1, 50, width, size=0.2), "one": np.float32(1), "low": np.float32(low), "axis": np.array([1]),
        "root": np.float32(4.0),
        **{f"g{i}": 1 + _weights(20 + i, width) for i in range(3)}, **{f"h{i}": _weights(30 + i, width) for i in range(3)},
        **{
            name: _weights(40 + i + (seed if name in "qk" else 0), *size, size=0.15 if name == "up" else 0.3)
            for i, (name, size) in enumerate(sizes.items())
        },
        **{f"{name}_b": _weights(50 + i, size[1]) for i, (name, size) in enumerate(sizes.items())},
    }  # fmt: skip

    def linear(x, name, y):
        nodes.append(node("MatMul", [x, name], [f"{y}_m" if bias or name != "q" else y]))
        if bias or name != "q":
            nodes.append(node("Add", [f"{y}_m", f"{name}_b"], [y]))

    for name in "qkv":
        linear("x", name, f"{name}_y")
    nodes += [
        node("Transpose", ["k_y"], ["k_t"], perm=[0, 2, 1]), node("MatMul", ["q_y", "k_t"], ["s"]),
        node("Div", ["s", "root"], ["scaled"]), node("Add", ["scaled", "mask_bias"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1), node("MatMul", ["p", "v_y"], ["c"]),
    ]  # fmt: skip
    linear("c", "o", "o_y")
    nodes += [node("Add", ["x", "o_y"], ["r1"]), node("LayerNormalization", ["r1", "g1", "h1"], ["n1"], epsilon=eps)]
    linear("n1", "up", "up_y")
    nodes.append(node("Gelu", ["up_y"], ["a"], approximate=gelu))
    linear("a", "down", "down_y")
    nodes += [node("Add", ["n1", "down_y"], ["r2"]), node("LayerNormalization", ["r2", "g2", "h2"], ["y"], epsilon=eps)]
    inputs = [("ids", T.INT64, [2, 9]), ("mask", T.INT64, [2, 9])]
    return _save(path, nodes, inputs, ("y", T.FLOAT, [2, 9, width]), constants)


def fractions(path, up=False, share=0.5):
    """A share of an image of bytes, rounded half to even, or half up."""
    from onnx import TensorProto as T
    from onnx import helper

    node = helper.make_node
    nodes = [node("Cast", ["x"], ["f"], to=T.FLOAT), node("Mul", ["f", "share"], ["h"])]
    nodes += [node("Add", ["h", "half"], ["a"]), node("Floor", ["a"], ["y"])] if up else [node("Round", ["h"], ["y"])]
    constants = {"share": np.float32(share), "half": np.float32(0.5)}
    return _save(path, nodes, [("x", T.UINT8, [2, 3, 8, 8])], ("y", T.FLOAT, [2, 3, 8, 8]), constants)


# -- model folders ------------------------------------------------------------------------------------------------------

# Attention in which some items have no key at all. The port's scale of the scores is SCALE.
ATTENTION = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 9, 16)), "lengths": TensorSpec(("N",), dtype="int32", low=0, high=6)},
    outputs={"y": TensorSpec(("N", 9, 16))},
    batch=8,
)
""",
    "torch": """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
    def forward(self, x, lengths):
        keep = torch.arange(9)[None] < lengths[:, None]
        mask = torch.where(keep, 0.0, torch.finfo(x.dtype).min).to(x.dtype)[:, None]
        scores = self.q(x) @ self.k(x).transpose(1, 2) + mask
        return self.o(torch.softmax(scores, -1) @ self.v(x))
build = Net
""",
    "tensorflow": """
import keras
from keras import layers, ops
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (layers.Dense(16, name=name) for name in "qkvo")
    def call(self, x, lengths):
        keep = ops.arange(9)[None] < lengths[:, None]
        mask = ops.where(keep, 0.0, -3.4028234663852886e38)[:, None]
        scores = ops.matmul(self.q(x), ops.transpose(self.k(x), (0, 2, 1))) * SCALE + mask
        return self.o(ops.matmul(ops.softmax(scores, -1), self.v(x)))
def build():
    model = Net()
    model(ops.zeros((1, 9, 16)), ops.ones((1,), "int32"))
    return model
""",
}

# A causal mask and one of padding, which are added up, are beyond the range of float32 in some places.
CAUSAL = {
    "spec": ATTENTION["spec"].replace("low=0", "low=1"),
    "torch": """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(16, 16) for _ in range(4))
        self.register_buffer("future", torch.full((9, 9), -3.4028234663852886e38).triu(1), persistent=False)
    def forward(self, x, lengths):
        padding = (1.0 - (torch.arange(9)[None] < lengths[:, None]).to(x.dtype)) * -3.4028234663852886e38
        scores = self.q(x) @ self.k(x).transpose(1, 2) + (self.future + padding[:, None])
        return self.o(torch.softmax(scores, -1) @ self.v(x))
build = Net
""",
    "tensorflow": """
import keras
import numpy as np
from keras import layers, ops
LOW = -3.4028234663852886e38
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (layers.Dense(16, name=name) for name in "qkvo")
    def call(self, x, lengths):
        padding = (1.0 - ops.cast(ops.arange(9)[None] < lengths[:, None], "float32")) * LOW
        future = np.triu(np.full((9, 9), LOW, "float32"), 1)
        scores = ops.matmul(self.q(x), ops.transpose(self.k(x), (0, 2, 1))) * SCALE + (future + padding[:, None])
        return self.o(ops.matmul(ops.softmax(scores, -1), self.v(x)))
def build():
    model = Net()
    model(ops.zeros((1, 9, 16)), ops.ones((1,), "int32"))
    return model
""",
}

_NET = {
    "torch": """
import torch
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 6)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
build = Net
""",
    "tensorflow": """
import keras
import tensorflow as tf
from keras import layers
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.a, self.b = layers.Dense(24, name="a"), layers.Dense(6, name="b")
    def call(self, x):
        return self.b(tf.tanh(self.a(x)))
def build():
    model = Net()
    model(tf.zeros((1, 12)))
    return model
""",
}
_STEP = {
    "torch": """
def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
def train_step(model, optimizer, batch):
    loss = loss_of(model(batch["x"]), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
""",
    "tensorflow": """
def train_state(model):
    return keras.optimizers.SGD(RATE)
def train_step(model, optimizer, batch):
    with tf.GradientTape() as tape:
        loss = loss_of(model(batch["x"]), batch)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
    return {"loss": loss}
""",
}


def _spec(**targets):
    said = ", ".join(f"{name!r}: {text}" for name, text in targets.items())
    return (
        "from xverify import ModelSpec, TensorSpec\n"
        'SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 12))}, outputs={"logits": TensorSpec(("N", 6))},\n'
        f"    targets={{{said}}}, batch=16)\n"
    )


def _step(torch, tensorflow, **targets):
    """A folder whose models have the losses of these texts, in a training step of their own."""
    return {
        "spec": _spec(**targets),
        "torch": _NET["torch"] + torch + _STEP["torch"],
        "tensorflow": _NET["tensorflow"] + tensorflow + _STEP["tensorflow"],
    }


_CLASS, _LENGTH = 'TensorSpec(("N",), "int64", low=0, high=4)', 'TensorSpec(("N",), "int64", low=1, high=6)'

# Two classes are masked with -inf in the loss.
INFINITE = _step(
    """
def loss_of(logits, batch):
    return F.cross_entropy(logits.masked_fill(torch.arange(6) >= 4, float("-inf")), batch["t"])
""",
    """
def loss_of(logits, batch):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(batch["t"], logits[:, :4]))
""",
    t=_CLASS,
)
# The attention of nanoGPT over the features: a buffer of whole numbers says where -inf is.
CAUSAL_STEP = _step(
    """
def loss_of(logits, batch):
    scores = logits[:, :, None] * logits[:, None]
    weights = F.softmax(scores.masked_fill(torch.tril(torch.ones(6, 6)) == 0, float("-inf")), -1)
    return ((weights @ logits[:, :, None]).squeeze(-1) - batch["y"]).square().mean()
""",
    """
def loss_of(logits, batch):
    scores = logits[:, :, None] * logits[:, None]
    weights = tf.nn.softmax(tf.where(tf.linalg.band_part(tf.ones((6, 6)), -1, 0) == 0, -1e9, scores), -1)
    return tf.reduce_mean(((weights @ logits[:, :, None])[:, :, 0] - batch["y"]) ** 2)
""",
    y='TensorSpec(("N", 6))',
)
# A mask by comparing whole numbers that are held as floats. The port's is LATER positions later.
FLOATS = _step(
    """
def loss_of(logits, batch):
    places = torch.arange(6).to(logits.dtype)[None] + 1.0
    mask = (places <= batch["len"].to(logits.dtype)[:, None]).to(logits.dtype)
    return ((logits - batch["y"]) ** 2 * mask).sum() / mask.sum()
""",
    """
def loss_of(logits, batch):
    mask = tf.cast(tf.range(6)[None] < tf.cast(batch["len"], tf.int32)[:, None] + LATER, tf.float32)
    return tf.reduce_sum((logits - batch["y"]) ** 2 * mask) / tf.reduce_sum(mask)
""",
    y='TensorSpec(("N", 6))',
    len=_LENGTH,
)
# The same with halves, and a sum of the mask as the position.
HALVES = _step(
    """
def loss_of(logits, batch):
    places = torch.ones_like(logits).cumsum(1) * 0.5
    mask = (places <= (batch["len"].to(logits.dtype) * 0.5)[:, None]).to(logits.dtype)
    return ((logits - batch["y"]) ** 2 * mask).sum() / mask.sum()
""",
    """
def loss_of(logits, batch):
    mask = tf.cast(tf.range(6)[None] < tf.cast(batch["len"], tf.int32)[:, None] + LATER, tf.float32)
    return tf.reduce_sum((logits - batch["y"]) ** 2 * mask) / tf.reduce_sum(mask)
""",
    y='TensorSpec(("N", 6))',
    len=_LENGTH,
)
# A recipe whose loss is that of the model files, with -inf in it; the gradient of the port's is FACTOR times as large.
RECIPE = {
    "spec": _spec(t=_CLASS),
    "torch": _NET["torch"]
    + """
def loss(outputs, targets):
    logits = outputs["logits"].masked_fill(torch.arange(6) >= 4, float("-inf"))
    return F.cross_entropy(logits, targets["t"])
""",
    "tensorflow": _NET["tensorflow"]
    + """
def loss(outputs, targets):
    logits = outputs["logits"][:, :4]
    found = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(targets["t"], logits))
    return FACTOR * found - (FACTOR - 1) * tf.stop_gradient(found)
""",
}
# The same with a mask of finfo.min that is added, and a log_softmax.
RECIPE_ADDED = {
    **RECIPE,
    "torch": _NET["torch"]
    + """
def loss(outputs, targets):
    x = outputs["logits"]
    mask = (1.0 - (torch.arange(6) < 4).to(x.dtype)) * torch.finfo(x.dtype).min
    return -F.log_softmax(x + mask, -1).gather(1, targets["t"][:, None]).mean()
""",
}


def write(path, files, **values):
    """A model folder. values: what stands in the port for the words in capitals."""
    path.mkdir()
    for name, text in files.items():
        for word, value in values.items():
            text = text.replace(word, str(value)) if name == "tensorflow" else text
        (path / f"{name}.py").write_text(text)
    return path
