"""What a report says from the command line: named faults however small, every fault, detection limits, and what was not judged."""

import csv

import numpy as np
import pytest
from helpers.modelfiles import save_onnx

from xverify.results.file import read
from xverify.testing.failing import failures

pytest.importorskip("torch")
pytest.importorskip("greenlet")
pytestmark = pytest.mark.slow  # each starts torch three times

FAST = ("--subjects", "torch:eager,torch_port:eager", "--no-timing", "--cases", 2)

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 16))}, outputs={"y": TensorSpec(("N", 8))})
"""

MODEL = """
import torch
import torch.nn.functional as F
from torch import nn


class Shift(nn.Module):
    def forward(self, x):
        return (x + 1e6) - 1e6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(16, 32), nn.Linear(32, 8)
        self.norm, self.act, self.shift = nn.LayerNorm(32, eps=1e-6), nn.GELU(), Shift()

    def forward(self, x):
        h = self.act(self.norm(self.fc1(x)))
        return self.fc2(h)


def build():
    return Net()
"""
EPS = ("eps=1e-6", "eps=1e-5")
SIDE_BRANCH = ("return self.fc2(h)", "return self.fc2(h) + 1e-9 * self.shift(h).sum(1, keepdim=True)")


@pytest.fixture
def ported(xverify, tmp_path):
    def run(*changes, reference=(), options=(), spec=SPEC):
        """A run of a port. changes: of the port alone. reference: of reference and port."""
        model = MODEL
        for old, new in reference:
            assert old in model
            model = model.replace(old, new)
        port = model
        for old, new in changes:
            assert old in port
            port = port.replace(old, new)
        folder = tmp_path / "port"
        folder.mkdir(exist_ok=True)
        for name, text in (("spec.py", spec), ("torch.py", model), ("torch_port.py", port)):
            (folder / name).write_text(text)
        return xverify("run", folder, *FAST, *options)

    return run


# -- a named fault is a fault -----------------------------------------------------------------------------------------

SMALL_GELU = (("self.act(self.norm(self.fc1(x)))", "self.act(0.035 * self.norm(self.fc1(x)))"),)


@pytest.mark.parametrize(
    ("reference", "change", "says"),
    [
        ((), EPS, "a small fault: `norm` behaves as eps=1e-05; the reference has 1e-06"),
        (
            (("self.norm(self.fc1(x))", "F.layer_norm(self.fc1(x), (32,), eps=1e-6)"),), EPS,
            "the port has eps=1e-05 in its layer_norm; the reference 1e-06",
        ),
        (
            SMALL_GELU, ("nn.GELU()", "nn.GELU(approximate='tanh')"),
            "`act` computes GELU by the tanh approximation; the reference GELU",
        ),
    ],
    ids=["eps of a layer", "eps in glue code", "form of GELU"],
)  # fmt: skip
def test_a_named_fault_fails_however_small_it_is(ported, reference, change, says):
    reference = tuple(reference)
    done = ported(change, reference=reference)
    error = done.row("torch_port:eager")["error"]
    wrong = [layer for layer in error["layers"]["layers"] if layer["verdict"] != "EQUAL"]
    assert max(max(layer["ratio"], layer["input_ratio"]) for layer in wrong) < 40, "it is no small fault"
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out
    assert [layer["small"] for layer in wrong] == [True]
    assert says in error["reason"]
    assert "a small fault" in error["reason"]
    assert says in done.out
    right = ported(reference=reference)
    assert (right.code, right.row("torch_port:eager")["error"]["verdict"]) == (0, "IDENTICAL")


def test_a_factor_that_no_mistake_explains_stays_a_warning(ported):
    done = ported(("return self.fc2(h)", "y = self.fc2(h)\n        return y + 4e-7 * y.roll(1, 1)"))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (0, "DRIFT"), done.out
    assert "small fault" not in error["reason"]


def test_a_constant_in_which_a_fault_was_found_is_not_untested(ported):
    reference = (("eps=1e-6", "eps=1e-9"),)
    right = ported(reference=reference)
    assert right.result["reference"]["untested"] == ["norm.eps"]
    known = right.result["reference"]["tested"] + 1
    done = ported(("eps=1e-9", "eps=1e-5"), reference=reference)
    assert "`norm` behaves as eps=1e-05" in done.row("torch_port:eager")["error"]["reason"]
    assert (done.result["reference"]["untested"], done.result["reference"]["tested"]) == ([], known)
    assert "UNTESTED" not in done.out


# -- every fault is told ----------------------------------------------------------------------------------------------


def test_every_fault_is_told_the_largest_first(ported, tmp_path):
    done = ported(
        ("self.norm(self.fc1(x))", "1.0001 * self.norm(self.fc1(x))"), ("return self.fc2(h)", "return 1.3 * self.fc2(h)"),
        EPS,
    )  # fmt: skip
    reason = done.row("torch_port:eager")["error"]["reason"]
    places = ["the output `y` is already wrong", "the input of `act` is already wrong", "`norm` behaves as eps=1e-05"]
    assert sorted(places, key=reason.index) == places
    assert reason.endswith("the reference has 1e-06 (the first in the order of computation)")
    lines = [line for line in done.out.splitlines() if line.startswith("  torch_port:eager: ")]
    assert [place in line for place, line in zip(places, lines, strict=True)] == [True] * 3
    told = [line for line in failures(read(tmp_path / "result.json")).splitlines() if line.startswith("    cause: ")]
    assert [place in line for place, line in zip(places, told, strict=True)] == [True] * 3


def test_layers_with_one_fault_share_a_line_and_further_faults_are_counted(ported):
    names = [f"norm{index}" for index in range(7)]
    layers = ", ".join(f"self.{name}" for name in names)
    made = ", ".join(["nn.LayerNorm(32, eps=1e-3)"] * 7)
    reference = (
        ("self.norm, self.act", f"{layers} = {made}\n        self.norm, self.act"),
        ("return self.fc2(h)", f"for norm in ({layers}):\n            h = norm(h)\n        return self.fc2(h)"),
    )
    done = ported(("eps=1e-3", "eps=1e-5"), reference=reference)
    says = "norm0: behaves as eps=1e-05; the reference has 0.001 (also `norm1`, `norm2`, `norm3` and 3 more)"
    assert done.row("torch_port:eager")["error"]["reason"] == says
    assert done.out.count("eps=1e-05") == 1
    calls = "for index, norm in enumerate(norms):\n            h = norm(h) * (1 + index * 2.0**-index)"
    wrong = (f"for norm in ({layers}):\n            h = norm(h)", calls.replace("norms", f"({layers})"))
    error = ported(wrong, reference=reference).row("torch_port:eager")["error"]
    faults = [layer for layer in error["layers"]["layers"] if layer["verdict"] == "DIFFERENT"]
    assert len(faults) == 6
    assert error["reason"].count("Fault between") in (4, 5)
    assert error["reason"].endswith(("and 2 more", "and 1 more"))


# -- detection limits, and what was not judged ------------------------------------------------------------------------


def test_the_detection_limit_is_shown_and_can_be_required(ported, tmp_path):
    last_bit = ("return self.fc2(h)", "return self.fc2(h.flip(1).flip(1).contiguous()) * 1.00000012")
    done = ported(last_bit, options=("--details", "--layers", "--csv", tmp_path / "rows.csv"))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"], error["judged"]) == (0, "EQUAL", 1.0), done.out
    limit = error["detection_limit"]
    assert 1e-8 < limit < 1e-4
    assert error["detection_limit"] == max(tensor["detection_limit"] for tensor in error["tensors"])
    for text in ("detection limit", "would show", "rounding explains up to", "on would have been seen"):
        assert text in done.out
    rows = list(csv.DictReader((tmp_path / "rows.csv").open()))
    assert float(rows[1]["detection_limit"]) == limit
    assert ported(last_bit, options=("--require", 2 * limit)).code == 0
    done = ported(last_bit, options=("--require", limit / 2))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (4, "UNTESTED"), done.out
    assert "would not have been seen in `y`" in error["reason"]
    assert error["reason"].endswith(f"{limit / 2:g} was required")


def test_an_output_whose_floor_hides_every_fault_is_untested(ported):
    reference = (("return self.fc2(h)", "return self.fc2(self.shift(h))"),)
    done = ported(("return self.fc2(", "return (1 + 1e-7) * self.fc2("), reference=reference)
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"], error["judged"]) == (4, "UNTESTED", 0.0), done.out
    assert "would not have been seen in `y`, case" in error["reason"]
    assert "INCONCLUSIVE" in done.out


def test_a_layer_that_shows_no_fault_is_untested_and_the_row_says_so(ported):
    nearly = ("return self.fc2(h)", "return (1 + 1e-7) * self.fc2(h)")
    done = ported(nearly, reference=(SIDE_BRANCH,), options=("--layers",))
    error = done.row("torch_port:eager")["error"]
    layers = {layer["layer"]: layer["verdict"] for layer in error["layers"]["layers"]}
    assert [name for name, verdict in layers.items() if verdict == "UNTESTED"] == ["shift"]
    assert (done.code, error["verdict"], error["judged"]) == (0, "EQUAL", pytest.approx(1 - 1 / len(layers))), done.out
    says = f"would not have been seen in 1 of {len(layers)} layers (`shift`)"
    assert says in error["reason"]
    assert "4/5" in done.out
    assert "shift is UNTESTED: " in done.out
    done = ported(nearly, reference=(SIDE_BRANCH,), options=("--strict",))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (4, "UNTESTED")
    assert error["reason"].startswith("--strict asks for a verdict on every output and layer; ")


def test_a_row_of_which_most_layers_show_no_fault_is_untested(ported):
    """Every layer but two is hidden; the outputs alone are within the limits."""
    shifts = "".join(f" + 1e-9 * self.shift{index}(h).sum(1, keepdim=True)" for index in range(8))
    names = ", ".join(f"self.shift{index}" for index in range(8))
    reference = (
        ("return self.fc2(h)", f"return self.fc2(h){shifts}"),
        ("self.norm, self.act", f"{names} = (Shift() for _ in range(8))\n        self.norm, self.act"),
    )
    done = ported(("return self.fc2(h)", "return (1 + 1e-7) * self.fc2(h)"), reference=reference)
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (4, "UNTESTED"), done.out
    assert "would not have been seen in 8 of 13 layers (`shift0`, `shift1`, `shift2` and 5 more)" in error["reason"]
    assert "at least 50% must be judged" in error["reason"]


# -- other frameworks, and files ---------------------------------------------------------------------------------------

KERAS = """
import keras
from keras import layers


def build():
    x = keras.Input((16,))
    y = layers.LayerNormalization(epsilon=1e-6, name="norm")(layers.Dense(32, name="fc1")(x))
    y = layers.Activation(lambda t: keras.activations.gelu(t, approximate=False), name="act")(y)
    return keras.Model(x, layers.Dense(8, name="fc2")(y))
"""


@pytest.mark.slow
def test_a_small_named_fault_of_a_keras_port_fails_and_the_right_port_is_equal(xverify, tmp_path):
    pytest.importorskip("keras")
    pytest.importorskip("tensorflow")
    for name, text in (("spec.py", SPEC), ("torch.py", MODEL), ("tensorflow.py", KERAS)):
        (tmp_path / name).write_text(text)
    run = ("run", tmp_path, "--subjects", "torch:eager,tensorflow:eager", "--no-timing")
    right = xverify(*run)
    assert (right.code, right.row("tensorflow:eager")["error"]["verdict"]) == (0, "EQUAL"), right.out
    (tmp_path / "tensorflow.py").write_text(KERAS.replace("epsilon=1e-6", "epsilon=1e-5"))
    wrong = xverify(*run)
    error = wrong.row("tensorflow:eager")["error"]
    assert (wrong.code, error["verdict"]) == (1, "DIFFERENT"), wrong.out
    assert error["noise_ratio"] < 40
    assert error["reason"] == "a small fault: `norm` behaves as eps=1e-05; the reference has 1e-06"


def test_a_check_shows_its_detection_limit_and_can_be_asked_for_more(xverify, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weights = np.random.default_rng(0).standard_normal((16, 8))
    nodes = [
        onnx.helper.make_node("MatMul", ["x", "w"], ["h"], name="product"),
        onnx.helper.make_node("Add", ["h", "far"], ["up"], name="up"),
        onnx.helper.make_node("Sub", ["up", "far"], ["shifted"], name="down"),
    ]
    sides = {"x": ["N", 16]}, {"h": ["N", 8]}
    constants = {"w": weights.astype(np.float32), "far": np.full(8, 1e6, np.float32)}
    plain = save_onnx(tmp_path / "plain.onnx", nodes[:1], *sides, constants)
    file = tmp_path / "check.json"
    done = xverify("check", plain, "--json", file, "--details")
    error = read(file).rows[0].error
    assert (done.code, error.verdict) == (0, "EQUAL"), done.out
    assert 1e-8 < error.detection_limit < 1e-4
    assert "detection limit" in done.out
    assert "a relative error from" in done.out
    assert xverify("check", plain, "--require", 2 * error.detection_limit).code == 0
    done = xverify("check", plain, "--require", error.detection_limit / 2)
    assert (done.code, "would not have been seen in `h`" in done.out) == (4, True), done.out
    hidden = save_onnx(tmp_path / "hidden.onnx", nodes, sides[0], {"shifted": ["N", 8]}, constants)
    done = xverify("check", hidden, "--json", file)
    assert (done.code, read(file).rows[0].error.verdict) == (4, "UNTESTED"), done.out
    says = " ".join(done.out.split())
    assert "`shifted`, case" in says or "shifted, case" in says
    assert "would not have been seen" in says or "no digit that rounding leaves" in says
