"""Ports that store weights otherwise than the reference, from the command line: right ones are EQUAL, and faults have a name."""

import pytest

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 6, 16))}, outputs={"y": TensorSpec(("N", 6, 7))},
    targets={"t": TensorSpec(("N", 6, 7))}, loss="mse", batch=3,
)
"""
COMMON = """
import torch
from torch import nn
import torch.nn.functional as F

def attended(q, k, v):
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    weights = torch.softmax(q @ k.transpose(-1, -2) * 6 ** -0.5, -1)
    return (weights @ v).transpose(1, 2).flatten(2)

def angles(x):
    frequencies = 100.0 ** (-torch.arange(0, 6, 2, dtype=x.dtype) / 6)
    found = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequencies
    return found.cos(), found.sin()
"""
# Four heads of queries and two of keys and values, with rotary position embeddings; two experts.
TORCH = f"""{COMMON}
def rotated(x):
    (c, s), (one, two) = angles(x), x.chunk(2, -1)
    return torch.cat([one * c - two * s, two * c + one * s], -1)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = nn.Linear(16, 24), nn.Linear(16, 12), nn.Linear(16, 12), nn.Linear(24, 16)
        self.norm = nn.LayerNorm(16, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))
        self.head = nn.Linear(16, 7)
    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (-1, 6)).transpose(1, 2) for layer in (self.q, self.k, self.v))
        x = self.norm(x + self.o(attended(rotated(q), rotated(k), v)))
        return self.head(x + sum(torch.tanh(each(x)) for each in self.experts))
build = Net
"""
PORT = f"""{COMMON}
def rotated(x):
    (c, s), (one, two) = angles(x), (x[..., ::2], x[..., 1::2])
    return torch.stack([one * c - two * s, two * c + one * s], -1).flatten(-2)

class Conv1D(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.zeros(24, 16)), nn.Parameter(torch.zeros(16))
    def forward(self, x):
        return x @ self.weight + self.bias

class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(2, 16, 16)), nn.Parameter(torch.zeros(2, 16))
    def forward(self, x):
        return torch.tanh(torch.einsum("bti,eoi->bteo", x, self.w) + self.b).sum(2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), Conv1D()
        self.norm = nn.LayerNorm(16, bias=False)
        self.experts, self.head = Experts(), nn.Linear(16, 7)
    def forward(self, x):
        together = self.qkv(x).unflatten(-1, (2, 4, 6))  # two groups, each with two queries, a key and a value
        q, k, v = together[:, :, :, :2], together[:, :, :, 2], together[:, :, :, 3]
        q, k, v = (each.transpose(1, 2) for each in (q.flatten(2, 3), k, v))
        x = self.norm(x + self.out(attended(rotated(q), rotated(k), v)))
        return self.head(x + self.experts(x))
build = Net
"""
NAMES = """
[torch_port]
"o" = "out"
[torch_port.stored]
"qkv" = { fuse = [{ of = "q", heads = 4, ROTARY }, { of = "k", heads = 2, ROTARY }, "v"], groups = 2 }
"out.weight" = { of = "o.weight", permute = [1, 0] }
"experts.w" = { stack = "experts.*.weight" }
"experts.b" = { stack = "experts.*.bias" }
""".replace("ROTARY", 'rotary = "half-to-interleaved"')
STORED = [*(f"experts.{i}.{kind}" for i in range(2) for kind in ("bias", "weight")), "k.bias", "k.weight", "o.weight"]
STORED += [f"{name}.{kind}" for name in "qv" for kind in ("bias", "weight")]


def folder(path, names=NAMES, port=PORT, reference=TORCH, spec=SPEC, changes=()):
    """Write a model folder. changes: (old, new) texts of the port or of names.toml."""
    path.mkdir()
    for old, new in changes:
        assert (old in port) != (old in names)
        port, names = port.replace(old, new), names.replace(old, new)
    for name, text in (("spec.py", spec), ("torch.py", reference), ("torch_port.py", port), ("names.toml", names)):
        (path / name).write_text(text)
    return path


def ran(xverify, path, *more):
    return xverify("run", path, "--subjects", "torch_port:eager", "--no-timing", *more, timeout=600)


def told(done):
    return " ".join(done.out.split())


def test_a_right_port_is_equal_and_judged_by_the_layers_of_the_reference(xverify, tmp_path):
    done = ran(xverify, folder(tmp_path / "port"), "--details")
    assert done.code == 0, done.out + done.err
    row, weights = done.row("torch_port:eager"), done.result["weights"]
    assert row["error"]["verdict"] == "EQUAL"
    assert row["weights_digest"] == weights["digest"]
    assert weights["stored"] == {"torch_port:eager": sorted(STORED)}
    assert (weights["changed"], weights["absent"]) == ({}, {})
    layers = {layer["layer"]: layer["verdict"] for layer in row["error"]["layers"]["layers"]}
    assert layers.keys() >= {"q", "k", "v", "o", "norm", "head"}
    assert set(layers.values()) <= {"EQUAL", "IDENTICAL"}
    assert "Stored otherwise: torch_port:eager stores 11 of the reference's weights in another form" in told(done)


# Fault -> (what is changed, what the reason says).
FAULTS = {
    "the layer computes k wrongly": (("nn.Linear(16, 48)", "Scaled(16, 48)"), "k differs first"),
    "k is wrong after the layer": (("self.qkv(x).", "self.qkv(x).mul(scale())."), "Fault between `v` and `o`"),
    "the heads of q have another order": (("attended(rotated(q)", "attended(rotated(q.flip(1))"), "Fault between `v` and `o`"),
    "the groups are not declared": (('"v"], groups = 2 }', '"v"] }'), "Fault between `v` and `o`"),
    "the rows of rotary embeddings have the other order": (
        ('rotary = "half-to-interleaved"', 'rotary = "interleaved-to-half"'), "Fault between `v` and `o`",
    ),
    "an expert is another one": (('stack = "experts.*.bias"', 'stack = ["experts.1.bias", "experts.0.bias"]'), "Fault between"),
}  # fmt: skip
SCALED = """
def scale():
    return torch.ones(48).index_fill(0, torch.arange(12, 18), 1.001)

class Scaled(nn.Linear):
    def forward(self, x):
        return super().forward(x) * scale()
"""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_has_the_name_of_the_references_layer(xverify, tmp_path, name):
    change, where = FAULTS[name]
    port = PORT.replace("class Net", f"{SCALED}\nclass Net")
    done = ran(xverify, folder(tmp_path / "port", port=port, changes=[change]))
    assert done.code == 1, done.out + done.err
    error = done.row("torch_port:eager")["error"]
    assert error["verdict"] == "DIFFERENT"
    assert where in error["reason"], error["reason"]


# -- training ---------------------------------------------------------------------------------------------------------

TRAIN = ("--task", "train", "--optimizer", "adamw", "--lr", "0.001")


def test_training_is_compared_in_the_form_of_the_reference(xverify, tmp_path):
    done = ran(xverify, folder(tmp_path / "port"), *TRAIN)
    assert done.code == 0, done.out + done.err
    checks = {check["name"]: check["verdict"] for check in done.row("torch_port:eager")["training"]["checks"]}
    assert checks.keys() >= {"forward", "backward", "gradients", "update"}
    assert set(checks.values()) <= {"EQUAL", "IDENTICAL"}


def test_weights_that_are_frozen_in_every_part_stay_as_they_are(xverify, tmp_path):
    spec = SPEC.replace("import ModelSpec", "import ModelSpec, Recipe")
    spec = spec.replace("batch=3", 'batch=3, training=Recipe(frozen=["*.bias", "experts.*"], average=0.9)')
    done = ran(xverify, folder(tmp_path / "port", spec=spec), *TRAIN)
    assert done.code == 0, done.out + done.err
    checks = {check["name"]: check["verdict"] for check in done.row("torch_port:eager")["training"]["checks"]}
    assert checks.keys() >= {"gradients", "frozen", "update", "average"}
    assert set(checks.values()) <= {"EQUAL", "IDENTICAL"}


def test_a_wrong_gradient_of_one_part_has_its_name(xverify, tmp_path):
    hook = "self.qkv.weight.register_hook(lambda gradient: gradient * scale()[:, None])"
    change = ("self.norm = ", f"{hook}\n        self.norm = ")
    port = PORT.replace("class Net", f"{SCALED}\nclass Net")
    done = ran(xverify, folder(tmp_path / "port", port=port, changes=[change]), *TRAIN)
    assert done.code == 1, done.out + done.err
    gradients = next(each for each in done.row("torch_port:eager")["training"]["checks"] if each["name"] == "gradients")
    assert gradients["verdict"] == "DIFFERENT"
    assert "k.weight" in gradients["says"]


@pytest.mark.parametrize(
    ("options", "spec", "says"),
    [
        (("--optimizer", "adafactor"), SPEC, "adafactor scales a step with means over a whole weight"),
        ((), SPEC.replace("batch=3", "batch=3, training=Recipe(clip_each=0.1)"), "clip_each divides by the norm of a whole"),
        ((), SPEC.replace("batch=3", 'batch=3, training=Recipe(groups=[Group("k.*", lr=0.1)])'),
         "qkv.weight is made of q.weight and k.weight, which the recipe trains with different settings"),
        ((), SPEC.replace("batch=3", 'batch=3, training=Recipe(frozen=["v.*"])'),
         "qkv.weight is made of q.weight and v.weight, which the recipe trains with different settings"),
    ],
    ids=["adafactor", "clipping", "groups", "frozen"],
)  # fmt: skip
def test_training_that_is_another_one_in_this_form_is_refused(xverify, tmp_path, options, spec, says):
    spec = spec.replace("import ModelSpec", "import Group, ModelSpec, Recipe")
    done = ran(xverify, folder(tmp_path / "port", spec=spec), "--task", "train", "--lr", "0.001", *options)
    row = done.row("torch_port:eager")
    assert row["status"] == "unsupported", done.out + done.err
    assert says in row["reason"]


# -- other values ------------------------------------------------------------------------------------------------------

IMAGES = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 3, 6, 6), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))}, batch=3)
"""
NORMED = """
import torch
from torch import nn
import torch.nn.functional as F

class RMS(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(5))
    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + self.weight)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4)
        self.register_buffer("taps", torch.tensor([0.25, 0.5, 0.25]))
        self.fc, self.norm = nn.Linear(4, 5), RMS()
    def forward(self, x):
        x = torch.relu(self.bn(self.conv(x)))
        x = F.conv2d(x, torch.outer(self.taps, self.taps).expand(4, 1, 3, 3), groups=4)
        return self.norm(self.fc(x.mean((2, 3))))
build = Net
"""
PLAIN = NORMED.replace("(1 + self.weight)", "self.weight").replace("self.bn(self.conv(x))", "self.conv(x)")
PLAIN = PLAIN.replace(", bias=False), nn.BatchNorm2d(4)", "), None").replace(
    'self.register_buffer("taps", torch.tensor([0.25, 0.5, 0.25]))', "self.taps = torch.tensor([0.25, 0.5, 0.25])"
)
VALUES = """
[torch_port]
absent = ["taps"]
[torch_port.stored]
"conv" = { of = "conv", batch_norm = "bn" }
"norm.weight" = { of = "norm.weight", add = 1 }
"""


def test_a_port_may_hold_other_values_of_the_same_model(xverify, tmp_path):
    done = ran(xverify, folder(tmp_path / "port", VALUES, PLAIN, NORMED, IMAGES), "--details")
    assert done.code == 0, done.out + done.err
    row, weights = done.row("torch_port:eager"), done.result["weights"]
    assert row["error"]["verdict"] == "EQUAL"
    assert weights["changed"] == {"torch_port:eager": ["conv.weight with bn", "conv.bias with bn", "norm.weight + 1"]}
    assert weights["absent"] == {"torch_port:eager": ["taps"]}
    assert weights["folded_digests"]["torch_port:eager"] == row["weights_digest"] != weights["digest"]
    assert {"bn", "norm", "fc"} <= {layer["layer"] for layer in row["error"]["layers"]["layers"]}
    assert "holds 3 weights with other values than the reference, as names.toml says (conv.weight with bn" in told(done)
    assert "has no place for weights of the reference, as names.toml says (taps)" in told(done)


FUSED = PLAIN.replace(", None", ", nn.Identity()").replace("self.conv(x)", "self.bn(self.conv(x))")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [((" + 1e-6)", " + 1e-6)"), ""), (("self.conv(x)", "self.conv(x.flip(-1))"), "bn"),
     (("self.bn(self.conv(x))", "2 * self.bn(self.conv(x))"), "fc")],
    ids=["right", "before it", "behind it"],
)  # fmt: skip
def test_a_folded_batch_norm_is_judged_where_an_identity_is_in_its_place(xverify, tmp_path, change, wrong):
    assert FUSED.count("nn.Identity()") == FUSED.count("self.bn(self.conv(x))") == FUSED.count(change[0]) == 1
    done = ran(xverify, folder(tmp_path / "port", VALUES, FUSED.replace(*change), NORMED, IMAGES))
    layers = done.row("torch_port:eager")["error"]["layers"]["layers"]
    assert "bn" in {layer["layer"] for layer in layers}
    assert [layer["layer"] for layer in layers if layer["verdict"] != "EQUAL"][:1] == [wrong] * bool(wrong)


def test_the_lines_of_a_folded_batch_norm_are_proposed(xverify, tmp_path):
    names = VALUES.replace('"conv" = { of = "conv", batch_norm = "bn" }', "")
    done = ran(xverify, folder(tmp_path / "port", names, PLAIN, NORMED, IMAGES))
    assert done.code == 3, done.out + done.err
    line = 'in names.toml under [torch_port.stored]: "conv" = { of = "conv", batch_norm = "bn" }; add eps = …'
    assert line in done.row("torch_port:eager")["reason"]


@pytest.mark.parametrize(
    "change",
    [('batch_norm = "bn" }', 'batch_norm = "bn", eps = 1e-3 }'), ("add = 1 }", "add = 0.9999 }"), ("[0.25, 0.5", "[0.2501, 0.5")],
    ids=["eps of the batch norm", "another number is added", "another constant"],
)  # fmt: skip
def test_other_values_that_are_wrong_are_different(xverify, tmp_path, change):
    done = ran(xverify, folder(tmp_path / "port", VALUES, PLAIN, NORMED, IMAGES, changes=[change]))
    assert done.code == 1, done.out + done.err
    assert done.row("torch_port:eager")["error"]["verdict"] == "DIFFERENT"


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (VALUES.replace('"taps"', '"tabs"'), "[torch_port] lists 'tabs' as absent, and it is no weight and no layer with weights"),
        (VALUES.replace('"bn"', '"bm"'), "[torch_port.stored] 'conv': 'bm' is no batch norm of the reference"),
        (VALUES.replace('"conv" =', '"cnn" ='), "[torch_port.stored] 'cnn' is no weight and no layer with weights of the model"),
        (VALUES.replace('absent = ["taps"]', ""), 'or write absent = ["taps"] under [torch_port] in names.toml'),
        (NAMES, "[torch_port.stored] 'experts.b' is no weight"),
    ],
)  # fmt: skip
def test_a_line_that_does_not_fit_the_model_is_the_reason_of_its_row(xverify, tmp_path, names, says):
    done = ran(xverify, folder(tmp_path / "port", names, PLAIN, NORMED, IMAGES))
    assert done.code == 3, done.out + done.err
    assert says in done.row("torch_port:eager")["reason"]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ('[torch_port.stored]\n"a" = { of = "b", axes = 1 }', "[torch_port.stored] 'a': it has 'axes'; it takes of, fuse, stack"),
        ('[torch_port.stored]\n"a" = 3', "[torch_port.stored] 'a': it is made of a name"),
        ('[torch_port]\nstored = ["a"]', "[torch_port] stored is a table, [torch_port.stored]; it is ['a']"),
        ("[torch_port]\nabsent = 3", "[torch_port] absent takes a list of layers"),
        ('[torch.stored]\n"a" = "b"', "[torch] has stored, and torch.py is the reference of this run"),
        ('[torch]\nabsent = ["a"]', "[torch] has absent, and torch.py is the reference of this run"),
    ],
)  # fmt: skip
def test_a_table_that_makes_no_sense_is_an_error_with_its_file(xverify, tmp_path, names, says):
    path = folder(tmp_path / "port", names, PLAIN, NORMED, IMAGES)
    done = ran(xverify, path)
    assert done.code == 2, done.out + done.err
    assert f"{path / 'names.toml'}: {says}" in done.err


def test_a_weight_that_a_port_has_twice_is_a_copy(xverify, tmp_path):
    tied = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.b.weight = self.a.weight
        self.c = nn.Linear(16, 7)
    def forward(self, x):
        return self.c(torch.tanh(self.b(torch.tanh(self.a(x)))))
build = Net
"""
    port, line = tied.replace("self.b.weight = self.a.weight", "pass"), '"b.weight" = { of = "a.weight", copy = true }'
    path = folder(tmp_path / "port", f"[torch_port.stored]\n{line}", port, tied)
    done = ran(xverify, path)
    assert done.code == 0, done.out + done.err
    layers = {layer["layer"] for layer in done.row("torch_port:eager")["error"]["layers"]["layers"]}
    assert layers >= {"a", "b", "c"}
    reason = ran(xverify, path, *TRAIN).row("torch_port:eager")["reason"]
    assert "b.weight and its equal are trained as two weights on one side, and as one on the other" in reason
    done = ran(
        xverify, folder(tmp_path / "other", f"[torch_port.stored]\n{line}".replace(", copy = true", ""), port, tied)
    )
    assert (
        "write copy = true in the line of a weight that the model has twice" in done.row("torch_port:eager")["reason"]
    )
