"""Runs of a port beside torch: outputs with few digits and with none, one wrong class, and floors behind a cut."""

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

# Output -> shape, the reference in torch, the same in numpy, and faults in numpy. v, w: (N, 5) and (N, 512).
SOLVED = "np.linalg.solve(m, b)"
ROUNDING = {
    "residual": ((5,), "(m @ torch.linalg.solve(m, b) - b)[..., 0]", f"(m @ {SOLVED} - b)[..., 0]",
                 f"(m @ {SOLVED} + b)[..., 0]", f"(m @ {SOLVED} - F(0.9) * b)[..., 0]"),
    "offset": ((5,), "((v + 1e4) - 1e4) - v", "((v + F(1e4)) - F(1e4)) - v", "((v + F(1e4)) - F(1e4)) + v",
               "((v + F(1e4)) - F(1e4)) - F(1.1) * v"),
    "circle": ((5,), "v.sin() ** 2 + v.cos() ** 2 - 1", "np.sin(v) ** 2 + np.cos(v) ** 2 - 1",
               "np.sin(v) ** 2 - np.cos(v) ** 2 - 1", "np.sin(v) ** 2 + np.cos(v) ** 2 - F(1.01)"),
    "centred": ((5,), "(a - a.mean(1, keepdim=True)).sum(1)", "(a - a.mean(1, keepdims=True)).sum(1)",
                "(a + a.mean(1, keepdims=True)).sum(1)", "(a - F(0.99) * a.mean(1, keepdims=True)).sum(1)"),
}  # fmt: skip
STAMPED = (
    "torch.cat([stamp, 100 * v.tanh(), {}], 1)",
    "np.concatenate([stamp, F(100) * np.tanh(v), {}], 1)",
)


def stamped(columns, torch, *numpy):
    """Columns of few digits beside time stamps and features."""
    return (9 + columns,), STAMPED[0].format(torch), *(STAMPED[1].format(each) for each in numpy)


FEW_DIGITS = {
    "speed": stamped(4, "(v[:, :4] + 2e5) - 2e5", "(v[:, :4] + F(2e5)) - F(2e5)", "-((v[:, :4] + F(2e5)) - F(2e5))"),
    "moved": stamped(3, "(v[:, :3] * 3 + 1e5) - 1e5", "(v[:, :3] * 3 + F(1e5)) - F(1e5)",
                     "F(0.5) * ((v[:, :3] * 3 + F(1e5)) - F(1e5))"),
    "passed": stamped(4, "(stamp + v[:, :4] * 2e4) - stamp", "(stamp + v[:, :4] * F(2e4)) - stamp",
                      "stamp - (stamp + v[:, :4] * F(2e4))"),
}  # fmt: skip
ONE = {
    "class": ((512,), "w + 0", "w", "times(w, np.s_[:, 7], 2e-5)"),
    "channel": ((128, 2, 2), "w.reshape(-1, 128, 2, 2)", "w.reshape(-1, 128, 2, 2)",
                "times(w.reshape(-1, 128, 2, 2), np.s_[:, 60], 1e-5)"),
    "position": ((256, 2), "w.reshape(-1, 256, 2)", "w.reshape(-1, 256, 2)", "times(w.reshape(-1, 256, 2), np.s_[:, 100], 2e-5)"),
    "row": ((2, 256), "w.reshape(-1, 2, 256).tanh()", "np.tanh(w.reshape(-1, 2, 256))",
            "times(np.tanh(w.reshape(-1, 2, 256)), np.s_[..., 9], 2e-5)"),
}  # fmt: skip
SQUARES = "(q * q).sum(-1)[:, :, None] + (q * q).sum(-1)[:, None, :] - 2 * q @ {}"
CUT = {
    "distance": ((10, 10), f"({SQUARES.format('q.transpose(1, 2)')}).clamp(min=0).sqrt()",
                 f"np.sqrt(np.maximum({SQUARES.format('q.transpose(0, 2, 1)')}, 0))",
                 f"np.sqrt(np.maximum({SQUARES.format('q.transpose(0, 2, 1)')}, F(1e-2)))"),
    "relu": ((512,), "torch.relu((w + 1e3) - 1e3 - w)", "np.maximum((w + F(1e3)) - F(1e3) - w, 0)",
             "np.maximum((w + F(1e3)) - F(1e3) + w, 0)"),
    "largest": ((512,), "torch.maximum(w * 7 / 7 - w, torch.zeros(()))", "np.maximum(w * F(7) / F(7) - w, 0)",
                "np.maximum(w * F(7) / F(7) - F(0.99) * w, 0)"),
    "spread": ((512,), "((c * c).mean(1) - c.mean(1) ** 2).clamp(min=0).sqrt()",
               "np.sqrt(np.maximum((c * c).mean(1) - c.mean(1) ** 2, 0))",
               "np.sqrt(np.maximum((c * c).mean(1) - F(0.9) * c.mean(1) ** 2, 0))"),
    "margin": ((32,), "torch.relu(1 - ((p / p.norm(dim=-1, keepdim=True)) ** 2).sum(-1))",
               "np.maximum(1 - ((p / np.linalg.norm(p, axis=-1, keepdims=True)) ** 2).sum(-1), 0)",
               "np.maximum(1 - F(0.9) * ((p / np.linalg.norm(p, axis=-1, keepdims=True)) ** 2).sum(-1), 0)"),
}  # fmt: skip
EVERY = {**ROUNDING, **FEW_DIGITS, **ONE, **CUT}
NAMES = [(name, number) for name, (_, _, *ports) in EVERY.items() for number in range(len(ports))]
SPEC = """
from xverify import ModelSpec, TensorSpec
inputs = {"x": TensorSpec(("N", 12)), "stamp": TensorSpec(("N", 4), low=1.7e9, high=1.8e9)}
SPEC = ModelSpec(inputs=inputs, outputs={OUTPUTS}, batch=4)
"""
TORCH = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.f, self.g = nn.Linear(12, 25), nn.Linear(12, 5), nn.Linear(12, 512)

    def forward(self, x, stamp):
        v, w, a = self.f(x), self.g(x), self.fc(x).reshape(-1, 5, 5)
        m, b = a + 4 * torch.eye(5), x[:, :5, None]
        c, p = w[:, None].expand(-1, 6, -1) * 1.0, w.reshape(-1, 32, 16)
        q = w[:, :60].reshape(-1, 10, 6)
        return OUTPUTS

def build():
    return Net()
"""
NUMPY = """
import numpy as np
F = np.float32

def times(y, place, size):
    y = y.copy()
    y[place] *= F(1 + size)
    return y

class Net:
    def __init__(self):
        sizes = {"fc": 25, "f": 5, "g": 512}
        self.weights = {f"{name}.weight": np.zeros((size, 12), F) for name, size in sizes.items()}
        self.weights |= {f"{name}.bias": np.zeros(size, F) for name, size in sizes.items()}

    def __call__(self, x, stamp):
        v, w, a = (x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"] for name in ("f", "g", "fc"))
        a = a.reshape(-1, 5, 5)
        m, b = a + 4 * np.eye(5, dtype=F), x[:, :5, None]
        c, p = np.repeat(w[:, None], 6, 1), w.reshape(-1, 32, 16)
        q = w[:, :60].reshape(-1, 10, 6)
        return OUTPUTS

def build():
    return Net()
"""


def write(folder, names):
    """A model of these outputs: (name, 0 for the right port, or the number of a fault)."""
    declared = ", ".join(
        f'"{name}_{number}": TensorSpec(("N", {", ".join(map(str, EVERY[name][0]))}))' for name, number in names
    )
    (folder / "spec.py").write_text(SPEC.replace("{OUTPUTS}", f"{{{declared}}}"))
    for file, text, place in (("torch.py", TORCH, None), ("numpy.py", NUMPY, 2)):
        computed = [EVERY[name][1 if place is None else place + number] for name, number in names]
        if place is None:
            computed = [f"({each}) + 0" for each in computed]
        (folder / file).write_text(text.replace("OUTPUTS", f"({', '.join(computed)},)"))
    return folder


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """The verdicts of numpy's outputs, by name and number, and the errors."""
    import xverify

    folder = write(tmp_path_factory.mktemp("few"), NAMES)
    (row,) = (
        row for row in xverify.run(folder, ["torch:eager", "numpy"], no_timing=True).rows if row.framework == "numpy"
    )
    found = {}
    for tensor in row.error.tensors:
        found.setdefault(tensor.output, []).append(tensor)
    return found


def worst(tensors):
    return max((tensor.verdict for tensor in tensors), key=lambda each: each.rank)


@pytest.mark.parametrize("name", EVERY)
def test_what_is_right_is_not_accused(verdicts, name):
    assert worst(verdicts[f"{name}_0"]) in (
        ("EQUAL", "IDENTICAL") if name in ONE or name == "distance" else ("EQUAL", "IDENTICAL", "UNTESTED")
    )


@pytest.mark.parametrize(("name", "number"), [pair for pair in NAMES if pair[1]])
def test_what_is_wrong_is_found(verdicts, name, number):
    assert worst(verdicts[f"{name}_{number}"]) in (("DRIFT", "DIFFERENT") if name in ONE else ("DIFFERENT",))


@pytest.mark.parametrize("name", ONE)
def test_the_limits_of_an_index_and_of_a_value_are_stated(verdicts, name):
    tensors = verdicts[f"{name}_0"]
    assert tensors
    for tensor in tensors:
        assert 1e-7 < tensor.detection_limit_index < 1e-5
        assert tensor.detection_limit_index <= tensor.detection_limit_value < 1e-3


@pytest.mark.parametrize("name", FEW_DIGITS)
def test_columns_that_are_not_judged_are_named(verdicts, name):
    assert verdicts[f"{name}_0"][0].not_judged == (f"[:, 9:{EVERY[name][0][0]}]",)


@pytest.mark.parametrize(
    ("name", "number", "code"), [("residual", 1, 1), ("speed", 0, 4), ("speed", 1, 1), ("class", 0, 0)]
)
def test_the_exit_code_says_so(xverify, tmp_path, name, number, code):
    write(tmp_path, [(name, number)])
    done = xverify("run", tmp_path, "--subjects", "torch:eager,numpy", "--no-timing", "--details")
    assert done.code == code, done.out + done.err
    told = {
        "residual": "zero but for rounding, so without a relative limit",
        "speed": "`speed_0[:, 9:13]`",
        "class": "in one class",
    }
    assert told[name].replace("_0", f"_{number}") in " ".join(done.out.split())
