"""Further faults that a report names: settings of convolutions, pooling, gates, tables of frequencies, and attention."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed  # noqa: E402

from xverify.explain.faults import catalogue  # noqa: E402

ROWS, IMAGE, ODD, SIGNAL = random(2, 6, 16), random(2, 8, 9, 7), random(2, 8, 8, 7), random(2, 8, 20)


def conv(settings, kind="Conv2d"):
    return model(f"self.a = nn.{kind}(8, 6, {settings})", "return self.a(x)")


SAME = """
class Same(nn.Conv2d):
    def forward(self, x):
        sides = []
        for size, k, s in ((x.shape[3], self.kernel_size[1], self.stride[1]), (x.shape[2], self.kernel_size[0], self.stride[0])):
            total = max((-(-size // s) - 1) * s + k - size, 0)
            sides += [total // 2, total - total // 2]
        return F.conv2d(F.pad(x, sides), self.weight, self.bias, self.stride)


class SameTransposed(nn.ConvTranspose2d):
    def forward(self, x):
        y = F.conv_transpose2d(x, self.weight, self.bias, self.stride)
        for axis in (2, 3):
            total = self.kernel_size[axis - 2] - self.stride[axis - 2]
            y = y.narrow(axis, total // 2, y.shape[axis] - total)
        return y


class Net("""


def same(port):
    """A port whose class of convolutions pads as TensorFlow does."""
    return port.replace("class Net(", SAME.strip(), 1)


GATED = """
self.gate, self.up, self.down = nn.Linear(16, 24), nn.Linear(16, 24), nn.Linear(24, 16)
self.act = nn.SiLU()
"""
SWIGLU = "return self.down(F.silu(self.gate(x)) * self.up(x))"
LINEAR = "self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)"
POOLED = "self.a, self.b = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)"
SINUSOIDS = """
half = 8
steps = torch.arange(half, dtype=torch.float32)
frequencies = torch.exp(-math.log(10000.0) * steps / (half - 1))
angles = x[:, :, :1] * 10 * frequencies
return self.b(torch.cat([angles.sin(), angles.cos()], -1))
"""
ONE_FACTOR = SINUSOIDS.replace("-math.log(10000.0) * steps / (half - 1)", "steps * -(math.log(10000.0) / (half - 1))")
POWERS = SINUSOIDS.replace("torch.exp(-math.log(10000.0) * steps / (half - 1))", "10000.0 ** (-steps / half)")
KEPT = """
self.b = nn.Linear(16, 16)
self.register_buffer("frequencies", 10000.0 ** (-torch.arange(8.0) / 8), persistent=False)
"""
FROM_TABLE = """
angles = x[:, :, :1] * 10 * self.frequencies
return self.b(torch.cat([angles.sin(), angles.cos()], -1))
"""
CROSS = """
self.a, self.k = nn.Linear(16, 16), nn.Linear(16, 10)
self.mha = nn.MultiheadAttention(16, 4, kdim=10, vdim=10, batch_first=True)
self.register_buffer("mask", torch.full((6, 6), -1e9).triu(1), persistent=False)
"""
ATTEND = """
k = self.k(x)
return self.mha(self.a(x), k, k, attn_mask=self.mask, need_weights=False)[0]
"""
# The port of an attention with scaled queries: the scale is in the weights of a copy, so the state stays the same.
SCALED = ATTEND.replace(
    "return self.mha(self.a(x), k, k, attn_mask=self.mask, need_weights=False)[0]",
    """
m = self.mha
parts = m.in_proj_bias.chunk(3)
return F.multi_head_attention_forward(
    self.a(x).transpose(0, 1), k.transpose(0, 1), k.transpose(0, 1), 16, 4, None, torch.cat([2 * parts[0], *parts[1:]]),
    None, None, False, 0.0, m.out_proj.weight, m.out_proj.bias, False, None, False, self.mask, True, 2 * m.q_proj_weight,
    m.k_proj_weight, m.v_proj_weight)[0].transpose(0, 1)
""".strip(),
)

# What the reference is, what one changes in it to get the port, the input, and the sentence.
FAULTS = [
    (
        conv("3, padding=2, dilation=2"),
        ("padding=2, dilation=2", "padding=1"),
        IMAGE,
        "has dilation 1; the reference 2",
    ),
    (conv("3, padding=1"), ("padding=1", "padding=3, dilation=3"), IMAGE, "has dilation 3; the reference 1"),
    (conv("3, dilation=2"), ("dilation=2", "dilation=1"), IMAGE, "has dilation 1; the reference 2"),
    (
        conv("3, padding=4, dilation=4", "Conv1d"),
        ("padding=4, dilation=4", "padding=2, dilation=2"),
        SIGNAL,
        "has dilation 2; the reference 4",
    ),
    (
        conv("3, padding=(1, 3), dilation=(1, 3)"),
        ("(1, 3), dilation=(1, 3)", "(3, 1), dilation=(3, 1)"),
        IMAGE,
        "has dilation (3, 1); the reference (1, 3)",
    ),
    (
        conv("3, 2, padding=1"),
        "same",
        ODD,
        'pads each axis by its size, as "same" does; the reference by 1 on both sides',
    ),
    (
        conv("5, (2, 3), padding=2"),
        "same",
        ODD,
        'pads each axis by its size, as "same" does; the reference by 2 on both sides',
    ),
    (
        conv("3, padding=1, padding_mode='reflect'"),
        (", padding_mode='reflect'", ""),
        IMAGE,
        "pads by zeros; the reference by reflect",
    ),
    (
        model("self.pad, self.a = nn.ReflectionPad2d(1), nn.Conv2d(8, 6, 3)", "return self.a(self.pad(x))"),
        ("nn.ReflectionPad2d(1)", "nn.ZeroPad2d(1)"),
        IMAGE,
        "pads by the mode constant; the reference by reflect",
    ),
    (
        model(POOLED, "return self.b(F.pad(self.a(x), (1, 1, 1, 1), mode='reflect'))"),
        (", mode='reflect'", ""),
        IMAGE,
        "pads by the mode constant; the reference by reflect",
    ),
    (
        conv("3, 2, padding=1, output_padding=1", "ConvTranspose2d"),
        "same",
        IMAGE,
        'leaves out 0 before and 1 behind each axis of its result, as "same" does; the reference 1 and 0',
    ),
    (
        conv("3, 2, padding=1, output_padding=1", "ConvTranspose2d"),
        (", output_padding=1", ""),
        IMAGE,
        "has no output padding; the reference has 1",
    ),
    (
        model("self.a, self.s = nn.Linear(16, 16), nn.Softplus(2)", "return self.s(self.a(x))"),
        ("nn.Softplus(2)", "nn.Softplus()"),
        ROWS,
        "has beta=1 in its softplus; the reference 2",
    ),
    (
        model(LINEAR, "return self.b(F.softplus(self.a(x)))"),
        ("self.a(x))", "self.a(x), beta=10)"),
        ROWS,
        "has beta=10 in its softplus; the reference 1",
    ),
    (
        model(LINEAR, "return self.b(F.softplus(self.a(x)))"),
        ("self.a(x))", "self.a(x), beta=1.7)"),
        ROWS,
        "has 1.7 for the beta of its softplus; the reference 1",
    ),
    (
        model(GATED, SWIGLU),
        ("F.silu(self.gate(x)) * self.up(x)", "self.gate(x) * F.silu(self.up(x))"),
        ROWS,
        "applies its activation (silu) to the second factor of a product; the reference to the first",
    ),
    (
        model(GATED, SWIGLU.replace("F.silu(self.gate(x)) * self.up(x)", "self.up(x) * self.act(self.gate(x))")),
        ("self.up(x) * self.act(self.gate(x))", "F.silu(self.up(x)) * self.gate(x)"),
        ROWS,
        "applies its activation (silu) to the first factor of a product; the reference to the second",
    ),
    (
        model(POOLED, "return self.b(F.avg_pool2d(self.a(x), 2))"),
        ("F.avg_pool2d", "F.max_pool2d"),
        IMAGE,
        "takes the maximum, not the average",
    ),
    (
        model(POOLED, "return self.b(F.max_pool2d(self.a(x), 3, 2, 1))"),
        ("F.max_pool2d", "F.avg_pool2d"),
        IMAGE,
        "takes the average, not the maximum",
    ),
    (
        model("self.a, self.p = nn.Conv2d(8, 8, 1), nn.AvgPool2d(3, 2)", "return self.p(self.a(x))"),
        ("nn.AvgPool2d", "nn.MaxPool2d"),
        IMAGE,
        "takes the maximum, not the average",
    ),
    (
        model("self.a, self.p = nn.Conv1d(8, 8, 1), nn.MaxPool1d(2)", "return self.p(self.a(x))"),
        ("nn.MaxPool1d", "nn.AvgPool1d"),
        SIGNAL,
        "takes the average, not the maximum",
    ),
    (
        model(POOLED, "return self.b(F.adaptive_avg_pool2d(self.a(x), 2))"),
        ("adaptive_avg_pool2d", "adaptive_max_pool2d"),
        IMAGE,
        "takes the maximum, not the average",
    ),
    (
        model("self.b = nn.Linear(16, 16)", SINUSOIDS),
        ("/ (half - 1)", "/ half"),
        ROWS,
        "divides by 8 in a table of 8 values, such as the frequencies of sines and cosines, where the reference divides by 7",
    ),
    (
        model("self.b = nn.Linear(16, 16)", ONE_FACTOR),
        ("/ (half - 1)", "/ half"),
        ROWS,
        "divides by 8 in a table of 8 values",
    ),
    (
        model("self.b = nn.Linear(16, 16)", POWERS),
        ("-steps / half", "-steps / (half - 1)"),
        ROWS,
        "divides by 7 in a table of 8 values",
    ),
    (
        model(KEPT, FROM_TABLE),
        ("torch.arange(8.0) / 8", "torch.arange(8.0) / 7"),
        ROWS,
        "divides by 7 in the exponents of a table of 8 frequencies, where the reference divides by 8",
    ),
    (model(CROSS, ATTEND), (".triu(1)", ".triu(2)"), ROWS, "has its mask shifted by one position"),
    (model(CROSS, ATTEND), ("attn_mask=self.mask, ", ""), ROWS, "does not apply a mask"),
    (model(CROSS, ATTEND), "scaled", ROWS, "scales its attention by 1; the reference by 1/√4"),
]


def port_of(reference, change):
    if change == "same":
        return same(reference.replace("nn.Conv2d(", "Same(").replace("nn.ConvTranspose2d(", "SameTransposed("))
    if change == "scaled":
        return model(CROSS, SCALED)
    assert change[0] in reference
    return reference.replace(*change)


@pytest.mark.parametrize(("reference", "change", "x", "says"), FAULTS, ids=range(len(FAULTS)))
def test_the_fault_is_named(tmp_path, reference, change, x, says):
    layers = replayed(tmp_path, reference, port_of(reference, change), x)
    assert layers.verdict == "DIFFERENT"
    assert says in layers.describe(layers.first)


RIGHT = [
    (conv("3, 2, padding=1"), "same", IMAGE),  # of odd sizes, where "same" pads both sides alike
    (conv("4, 2, padding=1", "ConvTranspose2d"), "same", IMAGE),
    (conv("3, padding=2, dilation=2"), ("padding=2, dilation=2", "padding='same', dilation=2"), IMAGE),
    (
        model(LINEAR, "return self.b(F.softplus(self.a(x), 2))"),
        ("F.softplus(self.a(x), 2)", "F.softplus(2 * self.a(x)) / 2"),
        ROWS,
    ),
    (
        model(GATED, SWIGLU),
        ("F.silu(self.gate(x)) * self.up(x)", "self.up(x) * (lambda g: g * g.sigmoid())(self.gate(x))"),
        ROWS,
    ),
    (
        model(POOLED, "return self.b(F.adaptive_avg_pool2d(self.a(x), 1))"),
        ("F.adaptive_avg_pool2d(self.a(x), 1)", "self.a(x).mean((2, 3), True)"),
        IMAGE,
    ),
    (model("self.b = nn.Linear(16, 16)", SINUSOIDS), ("* steps / (half - 1)", "/ (half - 1) * steps"), ROWS),
    (
        model(KEPT, FROM_TABLE),
        ("10000.0 ** (-torch.arange(8.0) / 8)", "torch.exp(-math.log(10000.0) / 8 * torch.arange(8.0))"),
        ROWS,
    ),
    (model(CROSS, ATTEND), ("-1e9", "-2e9"), ROWS),
]


@pytest.mark.parametrize(("reference", "change", "x"), RIGHT, ids=range(len(RIGHT)))
def test_a_right_port_draws_no_explanation(tmp_path, reference, change, x):
    layers = replayed(tmp_path, reference, port_of(reference, change), x)
    assert layers.verdict in ("IDENTICAL", "EQUAL")
    assert not any(each.glue or each.explanation for each in layers.layers)


def test_what_only_explains_is_not_planted():
    for layer in (torch.nn.Conv2d(2, 2, 3, padding=1), torch.nn.ConvTranspose2d(2, 2, 3, output_padding=1, stride=2)):
        plantable = {(fault.kind, fault.says) for fault in catalogue.plantable_faults(layer)}
        explaining = {(fault.kind, fault.says) for fault in catalogue.explanatory_faults(layer)}
        assert not any("dilation" in says or '"same" does; the reference' in says for _, says in plantable)
        assert any("dilation" in says or "leaves out" in says for _, says in explaining - plantable)
