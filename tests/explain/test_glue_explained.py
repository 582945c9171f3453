"""What a port's glue code computes instead: planted faults are named, and right ways of writing the same code are not."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.glueports import (  # noqa: E402
    ATTENTION,
    BLOCK,
    CHANNELS,
    COMPLEX_MODEL,
    CONV,
    EMBEDDED,
    FUSED,
    GROUPED,
    IMAGE,
    INTERLEAVED_MODEL,
    LINEAR,
    NORM,
    NORMED,
    OUTSIDE,
    PACKED,
    PROJECTED,
    QKV,
    RMS,
    ROTARY_MODEL,
    ROWS,
    SHARED,
    SHUFFLE,
    WINDOWS,
)
from helpers.replayedports import model, replayed  # noqa: E402

# What is added to the products is not scaled with them.
BIASED = ATTENTION.replace(" / math.sqrt(4)", " + bias").replace(
    "scores =", "bias = torch.linspace(-2, 3, 6)\nscores =", 1
)
UNMASKED = ATTENTION.replace("scores = scores.masked_fill(mask, -1e9)\n", "").replace("/ math.sqrt(4)", "* 0.5")

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
    # products that the reference does not scale
    (
        model(PROJECTED, BIASED),
        ("-2, -1) + bias", "-2, -1) * 1.0001 + bias"),
        ROWS,
        "has 1.0001 for a factor of a product of matrices; the reference 1 (torch.py:",
    ),
    (
        model(PROJECTED, BIASED.replace("q @ k.transpose(-2, -1)", "torch.einsum('bhqd,bhkd->bhqk', q, k)")),
        ("q, k) + bias", "q, k) * 0.37 + bias"),
        ROWS,
        "has 0.37 for a factor of a product of matrices; the reference 1 (torch.py:",
    ),
    # layers that are exchanged, which transposes the scores
    (
        model(PROJECTED, UNMASKED),
        ("self.a(x), self.b(x)", "self.b(x), self.a(x)"),
        ROWS,
        "takes the output of `a` for that of `b`, and the other way round (torch.py:",
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
