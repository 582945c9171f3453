"""Every class of the verdict, from the command line: a torch port of a torch model, with one thing changed."""

import json

import pytest

pytestmark = pytest.mark.slow

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 5))})
"""

MODEL = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(8, eps=1e-5)
        self.relu = nn.ReLU()
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = self.relu(self.bn(self.conv(x)))
        x = self.flatten(self.pool(x))
        return self.fc(x)


def build():
    return Net()
"""

FAST = ("--subjects", "torch:eager,torch_port:eager", "--warmup", 1, "--rerun", 4, "--cases", 2, "--details")


@pytest.fixture
def ported(xverify, tmp_path):
    def run(*changes, extra=(), model=MODEL, folder="port", fast=FAST):
        port = model
        for old, new in changes:
            assert old in port
            port = port.replace(old, new)
        path = tmp_path / folder
        path.mkdir()
        for name, text in (("spec", SPEC), ("torch", model), ("torch_port", port)):
            (path / f"{name}.py").write_text(text)
        return xverify("run", path, *fast, *extra)

    return run


def test_the_same_code_is_identical(ported):
    done = ported()
    assert (done.code, done.result["verdict"]) == (0, "PASS")
    assert {row["error"]["verdict"] for row in done.result["rows"]} == {"IDENTICAL"}
    error = done.row("torch_port:eager")["error"]
    assert (error["layers"]["compared"], error["layers"]["known"]) == (6, 6)
    assert done.result["reference"]["tested"] == 8  # five weights, two statistics, and eps
    assert "Layers: 6 of 6 checked against float64 in 2 of 2 subjects" in done.out


def test_another_order_of_summing_is_equal(ported):
    done = ported(
        (
            "return self.fc(x)",
            "return (x[:, 4:] @ self.fc.weight[:, 4:].T + x[:, :4] @ self.fc.weight[:, :4].T) + self.fc.bias",
        )
    )
    error = done.row("torch_port:eager")["error"]
    assert done.code == 0
    assert error["verdict"] == "EQUAL"
    assert 0 < error["noise_ratio"] < 3
    assert error["layers"]["missing"] == ["fc"]
    assert "not captured, so checked together with the glue code around them: fc" in done.out


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("eps=1e-5", "eps=1e-3", "bn: behaves as eps=0.001; the reference has 1e-05"),
        ("nn.ReLU()", "nn.GELU()", "relu: computes GELU by the error function; the reference ReLU"),
        ("3, 1, 1, bias", '3, 1, 1, padding_mode="reflect", bias', "conv: pads by reflect; the reference by zeros"),
        ("AdaptiveAvgPool2d", "AdaptiveMaxPool2d", "pool: takes the maximum, not the average"),
        (
            "self.relu(self.bn(self.conv(x)))",
            "self.relu(self.bn(self.conv(x * 1.001)))",
            "Fault between the model's inputs and `conv` (torch.py:",
        ),
        (
            "return self.fc(x)",
            "return self.fc(x) + 0.01",
            "Fault between `fc` and the output `y` (torch.py:",
        ),
        ("3, 1, 1, bias", "3, 2, 1, bias", "conv: has stride 2; the reference 1"),
    ],
)
def test_a_fault_is_different_and_named(ported, old, new, says):
    done = ported((old, new))
    assert (done.code, done.result["verdict"]) == (1, "FAIL")
    row = done.row("torch_port:eager")
    assert row["error"]["verdict"] == "DIFFERENT"
    assert says in row["error"]["reason"]
    assert says in done.out
    assert row["speed"]["verdict"] == "REFUSED"
    assert done.row("torch:eager")["error"]["verdict"] == "IDENTICAL"


ROUNDED = """class Rounded(nn.Linear):
    def forward(self, x):
        return nn.functional.linear(x, self.weight.half().to(x.dtype), self.bias.half().to(x.dtype))


class Net(nn.Module)"""


def test_another_precision_is_drift_and_strict_fails_it(ported):
    changes = (("class Net(nn.Module)", ROUNDED), ("nn.Linear(8, 5)", "Rounded(8, 5)"))
    done = ported(*changes)
    error = done.row("torch_port:eager")["error"]
    assert error["layers"]["layers"][5]["verdict"] == "DRIFT"
    assert "fc: has its weights rounded to float16" in done.out
    assert done.code == 0, error["reason"]
    assert error["verdict"] == "DRIFT"
    strict = ported(*changes, extra=("--strict",), folder="strict")
    assert (strict.code, strict.result["verdict"]) == (1, "FAIL")


PRECISION = (("class Net(nn.Module)", ROUNDED), ("nn.Linear(8, 5)", "Rounded(8, 5)"))
SECOND_CALL = """self.bias.half().to(x.dtype)) * self.factor()

    calls = 0

    def factor(self):
        self.calls += 1
        return 1.01 if self.calls % 2 == 0 else 1.0
"""
LATER_ITEMS = "return self.fc(x) * torch.where(torch.arange(len(x)) > 4, {}, 1.0)[:, None]"
TWICE = MODEL.replace("return self.fc(x)", "return self.fc(x) + self.fc(x.flip(1))")


@pytest.mark.parametrize(
    ("fault", "model", "says"),
    [
        (("return self.fc(x)", "return self.fc(x * 1.001)"), MODEL,
            "Fault between `flatten` and `fc` (torch.py:18-19): the input of `fc` is already wrong"),
        (("self.bias.half().to(x.dtype))\n", SECOND_CALL), TWICE, "fc differs first"),
        (("return self.fc(x)", LATER_ITEMS.format(1.05)), MODEL, "x what rounding can come to"),
    ],
    ids=["glue code", "another call", "items that no layer check sees"],
)  # fmt: skip
def test_another_precision_excuses_nothing_but_itself(ported, fault, model, says):
    done = ported(*PRECISION, fault, model=model, extra=("--batch", 8))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert says in error["reason"]


def test_another_precision_in_every_call_is_drift_and_leaves_nothing_unexplained(ported):
    done = ported(*PRECISION, (".half()", ".bfloat16()"), model=TWICE)
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (0, "DRIFT")
    assert error["reason"] == "fc: has its weights rounded to bfloat16"
    assert error["noise_ratio"] > 1000
    assert all(0.2 < tensor["rounding_ratio"] < 2 for tensor in error["tensors"])


def test_clean_layers_excuse_an_output_only_when_all_were_compared(ported):
    fault = ("return self.fc(x)", LATER_ITEMS.format(1.000004))
    done = ported(fault, extra=("--batch", 8))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (0, "EQUAL")
    assert 10 < error["noise_ratio"] < 30
    assert (
        "may be up to 30 because every layer was compared in this callable and this input case, and is EQUAL"
        in error["reason"]
    )
    uncaptured = fault[1].replace("self.fc(x)", "(x @ self.fc.weight.T + self.fc.bias)")
    done = ported((fault[0], uncaptured), extra=("--batch", 8), folder="uncaptured")
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert "every layer that was compared is EQUAL, but only 5 of 6 were compared completely" in error["reason"]


def test_a_mode_that_borrows_a_capture_has_to_return_what_the_captured_callable_returned(ported):
    fault = ("return self.fc(x)", "return self.fc(x) * (1.000003 if torch.jit.is_tracing() else 1.0)")
    subjects = "torch:eager,torch_port:trace,torch_port:eager"
    done = ported(fault, fast=("--subjects", subjects, *FAST[2:]))
    assert done.row("torch_port:eager")["error"]["verdict"] == "IDENTICAL"
    error = done.row("torch_port:trace")["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT")
    assert 10 < error["noise_ratio"] < 30
    assert (error["layers"]["compared"], error["layers"]["subject"]) == (6, "torch_port:eager")
    assert (
        "x this noise away from what the captured pass of torch_port:eager (in mode eager) returned" in error["reason"]
    )


def test_when_one_mode_cannot_be_captured_the_next_one_is_tried(xverify, tmp_path):
    for name, text in (("spec", SPEC), ("torch", MODEL), ("torch_port", MODEL)):
        (tmp_path / f"{name}.py").write_text(text)
    done = xverify("run", tmp_path, "--subjects", "torch:eager,uncaptured:eager,uncaptured:trace", *FAST[2:])
    assert done.code == 0
    for mode in ("eager", "trace"):
        layers = done.row(f"uncaptured:{mode}")["error"]["layers"]
        assert (layers["compared"], layers["subject"], layers["mode"]) == (6, "uncaptured:trace", "eager")
        assert layers["failed"] == {"uncaptured:eager": "this mode shows no layers"}
    assert (
        "captured from uncaptured:trace; uncaptured:eager could not be captured: this mode shows no layers" in done.out
    )


def test_dropout_that_is_left_on_is_invalid(ported):
    random = "return self.fc(nn.functional.dropout(x, 0.3, training=True))"
    done = ported(("return self.fc(x)", random))
    error = done.row("torch_port:eager")["error"]
    assert (done.code, error["verdict"]) == (1, "INVALID")
    assert "dropout or another random operation is on" in error["reason"]


def test_a_model_that_cannot_be_replayed_is_compared_at_its_outputs(ported):
    torn = MODEL.replace(
        "x = self.relu(self.bn(self.conv(x)))", "x = self.relu(self.bn(self.conv(x)))\n        self.seen = x.data_ptr()"
    )
    torn = torn.replace(
        "return self.fc(x)",
        "y = self.fc(x)\n        assert y.dtype == torch.float32 or type(self).__name__\n        return y",
    )
    torn = torn.replace(
        "assert y.dtype",
        "import greenlet\n        assert greenlet.getcurrent().parent is None, 'not here'\n        assert y.dtype",
    )
    done = ported(model=torn)
    assert (done.code, done.result["verdict"]) == (0, "PASS")
    assert "not here" in done.result["reference"]["replay_problem"]
    assert "Layers: none checked: AssertionError: not here" in done.out


def test_layers_with_other_names_are_matched_and_shown(ported):
    done = ported(("self.relu = nn.ReLU()", "self.act = nn.ReLU()"), ("self.relu(", "self.act("))
    layers = done.row("torch_port:eager")["error"]["layers"]
    assert layers["matched"] == {"relu": "act"}
    assert layers["compared"] == 6
    assert "matched by order and shape: relu = act" in done.out


def test_a_weight_without_effect_is_untested(ported, tmp_path):
    dead = MODEL.replace("return self.fc(x)", "return self.fc(0 * x)")
    done = ported(model=dead)
    assert "UNTESTED: 1 of 8 weights and constants" in done.out
    assert done.result["reference"]["untested"] == ["fc.weight"]
    assert (done.code, done.result["verdict"]) == (4, "INCONCLUSIVE")  # and its output is constant


def test_explain_shows_every_layer(ported, xverify, tmp_path):
    ported(("eps=1e-5", "eps=1e-3"), extra=("--json", tmp_path / "kept.json"))
    done = xverify("explain", tmp_path / "kept.json")
    assert done.code == 1
    lines = {line.split()[0]: line for line in done.out.splitlines() if line.split()}
    assert lines["conv"].count("┊") >= 1
    assert lines["bn"].endswith("DIFFERENT")
    assert "bn: behaves as eps=0.001" in done.out
    faults = xverify("explain", tmp_path / "kept.json", "--subject", "torch_port:eager", "--faults")
    assert "BatchNorm2d" in faults.out
    assert "Conv2d" not in faults.out


@pytest.mark.parametrize(
    ("text", "says"),
    [(None, "No such file"), ("{", "is no JSON"), ("[]", "is no result of xverify run"),
        ('{"schema_version": 9, "rows": [], "reference": {}, "model": "m", "verdict": "PASS"}', "version 9; this xverify reads 1")],
)  # fmt: skip
def test_explain_refuses_a_file_that_is_no_result(xverify, tmp_path, text, says):
    file = tmp_path / "x.json"
    if text is not None:
        file.write_text(text)
    done = xverify("explain", file)
    assert done.code == 2
    assert says in done.err


def test_mutate_scores_the_verdict(xverify, tmp_path):
    done = xverify("mutate", "mlp", "--json", tmp_path / "score.json", "--quiet")
    (score,) = json.loads((tmp_path / "score.json").read_text())
    assert done.code == 0, done.out
    assert score["planted"] == score["caught"] + score["untested"]
    assert score["missed"] == 0
    assert score["false_alarms"] == []
    assert score["clean_runs"] == 10
    assert score["layer_named"] >= 0.95 * score["caught"]
    assert score["explained"] >= 0.85 * score["caught"]
    wrong = xverify("mutate", "no-such-model")
    assert wrong.code == 2
