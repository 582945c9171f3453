"""What a port's glue code computes instead: planted faults are named, and right ways of writing the same code are not."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed  # noqa: E402

ROWS, IMAGE = random(2, 6, 16), random(2, 8, 6, 6)

LINEAR = "self.a, self.b, self.c = nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16)"
CONV = "self.a, self.b, self.c = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 1)"

ATTENTION = """
q, k, v = (t.view(-1, 6, 4, 4).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
scores = q @ k.transpose(-2, -1) / math.sqrt(4)
mask = torch.triu(torch.ones(6, 6, dtype=torch.bool), diagonal=1)
scores = scores.masked_fill(mask, -1e9)
weights = scores.softmax(dim=-1)
y = (weights @ v).transpose(1, 2).reshape(-1, 6, 16)
return self.o(y)
"""
PROJECTED = LINEAR + "\nself.o = nn.Linear(16, 16)"
FUSED = """
q, k, v = (t.view(-1, 6, 4, 4).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
return self.o(y.transpose(1, 2).flatten(2))
"""
QKV = """
qkv = self.qkv(x)
q, k, v = qkv.chunk(3, dim=-1)
q, k, v = (t.reshape(-1, 6, 2, 8).transpose(1, 2) for t in (q, k, v))
y = F.scaled_dot_product_attention(q, k, v)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""
PACKED = "self.qkv, self.o = nn.Linear(16, 48), nn.Linear(16, 16)"

TABLES = """
angles = torch.arange(6.0)[:, None] * 100.0 ** (-torch.arange(4) / 4)
angles = torch.cat([angles, angles], -1)
self.register_buffer("cos", angles.cos(), persistent=False)
self.register_buffer("sin", angles.sin(), persistent=False)
"""
ROTATE = """

def rotate(x):
    x1, x2 = x.chunk(2, -1)
    return torch.cat((-x2, x1), -1)


def apply(x, cos, sin):
    return x * cos + rotate(x) * sin
"""
ROTARY = """
q, k, v = (t.view(-1, 6, 2, 8).transpose(1, 2) for t in (self.a(x), self.b(x), self.c(x)))
q, k = apply(q, self.cos, self.sin), apply(k, self.cos, self.sin)
y = F.scaled_dot_product_attention(q, k, v)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""
INTERLEAVED_TABLES = TABLES.replace("torch.cat([angles, angles], -1)", "angles.repeat_interleave(2, -1)")
INTERLEAVED_ROTATE = ROTATE.replace("x.chunk(2, -1)", "x[..., ::2], x[..., 1::2]").replace(
    "torch.cat((-x2, x1), -1)", "torch.stack((-x2, x1), -1).flatten(-2)"
)
COMPLEX = """

def apply(x, cos, sin):
    z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    turned = torch.complex(cos[..., ::2], sin[..., ::2])
    return torch.view_as_real(z * turned).flatten(-2)
"""
ROTARY_MODEL = model(PROJECTED + TABLES, ROTARY, ROTATE)
INTERLEAVED_MODEL = model(PROJECTED + INTERLEAVED_TABLES, ROTARY, INTERLEAVED_ROTATE)
COMPLEX_MODEL = model(PROJECTED + INTERLEAVED_TABLES, ROTARY, COMPLEX)

RMS = """

class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 16))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2) * self.weight
"""
NORMED = "return self.b(self.norm(self.a(x)))"
NORM = "self.a, self.norm, self.b = nn.Linear(16, 16), RMSNorm(), nn.Linear(16, 16)"
OUTSIDE = ("torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)", "1 / (x.pow(2).mean(-1, keepdim=True).sqrt() + 1e-2)")

WINDOWS = """
x = torch.roll(self.a(x), shifts=(-2, -1), dims=(2, 3))
return self.b(x)
"""
SHUFFLE = "return self.c(self.b(F.pixel_shuffle(self.a(x), 2).repeat(1, 4, 1, 1)))"
BLOCK = """
y = self.a(x)
y = F.relu(self.b(y) + y)
return self.c(y)
"""
EMBEDDED = """
y = self.a(x)
y = torch.cat([y.cos(), y.sin()], dim=-1)[..., 8:24]
return self.b(y)
"""

CHANNELS = "return self.b(self.a(x).view(-1, 2, 4, 6, 6).transpose(1, 2).flatten(1, 2))"
GROUPED = "self.a, self.b, self.o = nn.Linear(16, 16), nn.Linear(16, 8), nn.Linear(16, 16)"
SHARED = """
q = self.a(x).view(-1, 6, 4, 4).transpose(1, 2)
k = self.b(x).view(-1, 6, 2, 4).transpose(1, 2).repeat_interleave(2, dim=1)
y = F.scaled_dot_product_attention(q, k, k)
return self.o(y.transpose(1, 2).reshape(-1, 6, 16))
"""

# What the reference is, what one changes in it to get the port, the input, and the sentence.
FAULTS = [
    # attention
    (
        model(PROJECTED, ATTENTION),
        (" / math.sqrt(4)", ""),
        ROWS,
        "does not scale; the reference divides by 2 (torch.py:",
    ),
    (
        model(PROJECTED, ATTENTION),
        ("math.sqrt(4)", "math.sqrt(16)"),
        ROWS,
        "a factor of 0.25; the reference divides by 2",
    ),
    (
        model(PROJECTED, ATTENTION),
        ("dim=-1)\ny", "dim=-2)\ny"),
        ROWS,
        "normalises its softmax over axis -2; the reference over -1",
    ),
    (
        model(PROJECTED, ATTENTION),
        ("diagonal=1", "diagonal=2"),
        ROWS,
        "has 2 as the diagonal of a triangular mask (triu); the reference 1",
    ),
    (model(PROJECTED, ATTENTION), ("masked_fill(mask", "masked_fill(~mask"), ROWS, "has its mask inverted"),
    (model(PROJECTED, ATTENTION), ("scores = scores.masked_fill(mask, -1e9)\n", ""), ROWS, "does not apply a mask"),
    (
        model(PROJECTED, ATTENTION),
        (".transpose(1, 2).reshape(-1, 6, 16)", ".reshape(-1, 6, 16)"),
        ROWS,
        "does not transpose before",
    ),
    (
        model(PROJECTED, FUSED),
        ("is_causal=True", "is_causal=True, scale=1.0"),
        ROWS,
        "scales its attention by 1; the reference by 0.5",
    ),
    (model(PROJECTED, FUSED), ("is_causal=True", "is_causal=False"), ROWS, "has no causal mask"),
    (
        model(PROJECTED, FUSED),
        ("is_causal=True", "attn_mask=torch.ones(6, 6, dtype=torch.bool).tril(1)"),
        ROWS,
        "one position more",
    ),
    (model(PACKED, QKV), ("q, k, v = qkv.chunk", "q, v, k = qkv.chunk"), ROWS, "takes parts 1, 3, 2 of a split"),
    (
        model(PACKED, QKV),
        (".chunk(3, dim=-1)", ".view(-1, 6, 16, 3).unbind(-1)"),
        ROWS,
        "takes every third value for a part",
    ),
    (
        model(PACKED, QKV),
        ("t.reshape(-1, 6, 2, 8).transpose(1, 2)", "t.reshape(-1, 6, 8, 2).permute(0, 3, 1, 2)"),
        ROWS,
        "splits axis 2 as (8, 2) and reorders it; the reference as (2, 8)",
    ),
    # rotary embeddings
    (
        ROTARY_MODEL,
        None,
        ROWS,
        "pairs neighbours in its rotary embedding (interleaved); the reference pairs the two halves",
    ),
    (
        INTERLEAVED_MODEL,
        None,
        ROWS,
        "pairs the two halves in its rotary embedding; the reference pairs neighbours (interleaved)",
    ),
    (
        COMPLEX_MODEL,
        None,
        ROWS,
        "pairs the two halves in its rotary embedding; the reference pairs neighbours (interleaved)",
    ),
    (ROTARY_MODEL, ("(-x2, x1)", "(x2, -x1)"), ROWS, "rotates its rotary embedding in the other direction"),
    # normalisations and activations
    (model(NORM, NORMED, RMS), OUTSIDE, 0.1 * ROWS, "adds eps=0.01 to the root; the reference under the root"),
    (model(NORM, NORMED, RMS), ("+ 1e-2", "+ 1e-3"), 0.1 * ROWS, "has eps=0.001; the reference 0.01"),
    (
        model("self.a, self.n = nn.Conv2d(8, 8, 1), nn.GroupNorm(4, 8)", "return self.n(self.a(x))"),
        ("GroupNorm(4", "GroupNorm(2"),
        IMAGE,
        "normalises in 2 groups; the reference in 4",
    ),
    (
        model(CONV, "return self.b(F.group_norm(self.a(x), 4))"),
        ("x), 4)", "x), 8)"),
        IMAGE,
        "normalises in 8 groups; the reference in 4",
    ),
    (
        model(LINEAR, "return self.b(F.elu(self.a(x), 0.5))"),
        (", 0.5)", ")"),
        ROWS,
        "has alpha=1 in its ELU; the reference 0.5",
    ),
    (
        model(
            "self.a, self.e, self.b = nn.Linear(16, 16), nn.ELU(0.5), nn.Linear(16, 16)",
            "return self.b(self.e(self.a(x)))",
        ),
        ("ELU(0.5)", "ELU()"),
        ROWS,
        "has alpha=1 in its ELU; the reference 0.5",
    ),
    (
        model(LINEAR, "return self.b((self.a(x) / 0.5).softmax(-1))"),
        (" / 0.5", ""),
        ROWS,
        "does not scale; the reference divides by 0.5",
    ),
    (
        model(LINEAR, "return self.b(self.a(x).softmax(-1))"),
        ("self.a(x).softmax", "(2 * self.a(x)).softmax"),
        ROWS,
        "values that are 2 times as large",
    ),
    (
        model(LINEAR, "return self.b(F.elu(self.a(x), 0.5))"),
        ("0.5)", "0.37)"),
        ROWS,
        "has 0.37 for alpha; the reference 0.5",
    ),
    (
        model(LINEAR, "return self.b(self.a(x).softmax(-1))"),
        ("self.a(x).softmax", "(self.a(x) / 0.7).softmax"),
        ROWS,
        "for a factor of what its softmax is given; the reference 1",
    ),
    # images
    (
        model(CONV, "return self.b(F.avg_pool2d(self.a(x), 3, 1, 1))"),
        ("3, 1, 1)", "3, 1, 1, count_include_pad=False)"),
        IMAGE,
        "leaves out the padding in its averages",
    ),
    (model(CONV, WINDOWS), ("(-2, -1)", "(2, 1)"), IMAGE, "rolls by (2, 1); the reference by (-2, -1)"),
    (
        model(CONV, SHUFFLE),
        (
            "F.pixel_shuffle(self.a(x), 2)",
            "F.pixel_shuffle(self.a(x).view(2, 2, 2, 2, 6, 6).permute(0, 3, 1, 2, 4, 5).flatten(1, 3), 2)",
        ),
        IMAGE,
        "as depth_to_space of other frameworks",
    ),
    (
        model(CONV, "return self.b(F.pad(self.a(x), (1, 0, 1, 0)))"),
        ("(1, 0, 1, 0)", "(0, 1, 0, 1)"),
        IMAGE,
        "pads by (0, 1, 0, 1); the reference by (1, 0, 1, 0)",
    ),
    (model(CONV, CHANNELS), ("2, 4, 6, 6", "4, 2, 6, 6"), IMAGE, "splits axis 1 as (4, 2); the reference as (2, 4)"),
    (
        model(GROUPED, SHARED),
        ("repeat_interleave(2, dim=1)", "repeat(1, 2, 1, 1)"),
        ROWS,
        "repeats the whole axis, where the reference repeats each value",
    ),
    # sums and order
    (
        model(CONV, BLOCK),
        ("F.relu(self.b(y) + y)", "F.relu(self.b(y)) + y"),
        IMAGE,
        "applies its activation (relu) to the first term of a sum, before the sum",
    ),
    (
        model(CONV, BLOCK.replace("F.relu(self.b(y) + y)", "F.relu(self.b(y)) + y")),
        ("F.relu(self.b(y)) + y", "F.relu(self.b(y) + y)"),
        IMAGE,
        "applies its activation (relu) after a sum; the reference to the first term",
    ),
    (model(CONV, BLOCK), ("self.b(y) + y", "self.b(y)"), IMAGE, "leaves out the second term of a sum"),
    (model(LINEAR, EMBEDDED), ("y.cos(), y.sin()", "y.sin(), y.cos()"), ROWS, "concatenates in the order 2, 1"),
    (
        model(LINEAR, "return self.b(self.a(x)[:, 0])"),
        ("[:, 0]", "[:, -1]"),
        ROWS,
        "takes position 5; the reference position 0 of axis 1",
    ),
    (
        model(LINEAR, "return self.b(self.a(x).mean(1))"),
        (".mean(1)", ".sum(1)"),
        ROWS,
        "sums where the reference averages",
    ),
]
OTHER_PAIRING = {ROTARY_MODEL: INTERLEAVED_MODEL, INTERLEAVED_MODEL: ROTARY_MODEL, COMPLEX_MODEL: ROTARY_MODEL}


def port_of(reference, change):
    if change is None:
        return OTHER_PAIRING[reference]
    assert change[0].replace("\n", "\n        ") in reference
    return reference.replace(change[0].replace("\n", "\n        "), change[1].replace("\n", "\n        "))


@pytest.mark.parametrize(("reference", "change", "x", "says"), FAULTS, ids=[fault[3][:40] for fault in FAULTS])
def test_a_fault_in_glue_code_is_named(tmp_path, reference, change, x, says):
    layers = replayed(tmp_path, reference, port_of(reference, change), x)
    assert layers.verdict == "DIFFERENT"
    assert says in layers.describe(layers.first)


RIGHT = [
    (model(PROJECTED, ATTENTION), model(PROJECTED, FUSED)),
    (
        model(PROJECTED, FUSED),
        model(
            PROJECTED,
            ATTENTION.replace("q @ k.transpose(-2, -1) / math.sqrt(4)", "torch.einsum('bhqd,bhkd->bhqk', 0.5 * q, k)"),
        ),
    ),
    (INTERLEAVED_MODEL, COMPLEX_MODEL),
    (COMPLEX_MODEL, INTERLEAVED_MODEL),
    (
        model(NORM, NORMED, RMS),
        model(NORM, NORMED, RMS).replace("x.pow(2).mean(-1, keepdim=True)", "(x * x).sum(-1, keepdim=True) / 16"),
    ),
    (
        model(PACKED, QKV),
        model(
            PACKED,
            QKV.replace("q, k, v = qkv.chunk(3, dim=-1)", "q, k, v = qkv[..., :16], qkv[..., 16:32], qkv[..., 32:]"),
        ),
    ),
]


@pytest.mark.parametrize(("reference", "port"), RIGHT)
def test_right_glue_code_that_is_written_in_another_way_is_not_explained(tmp_path, reference, port):
    layers = replayed(tmp_path, reference, port, ROWS)
    assert layers.verdict == "EQUAL"
    assert not any(each.glue or each.explanation for each in layers.layers)


def test_a_fault_that_nothing_known_reproduces_has_no_explanation(tmp_path):
    reference = model(LINEAR, "return self.b(torch.tanh(self.a(x)) * torch.sigmoid(self.c(x)))")
    port = reference.replace("torch.tanh(self.a(x))", "torch.tanh(self.a(x) + 0.137 * self.c(x) ** 2)")
    layers = replayed(tmp_path, reference, port, ROWS)
    assert layers.verdict == "DIFFERENT"
    assert not any(each.glue for each in layers.layers)


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


@pytest.mark.slow
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
