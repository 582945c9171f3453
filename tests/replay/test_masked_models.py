"""Masks and other exact arithmetic on the command line: wrong models are found beside them, and right ones are EQUAL."""

import importlib.util

import numpy as np
import pytest
from helpers import maskedmodels as models

pytestmark = pytest.mark.slow


def need(*modules):
    for module in modules:
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"{module} is not installed")


# -- files --------------------------------------------------------------------------------------------------------------

LOWEST = models.LOWEST
RIGHT = {"attention": (models.attention, {}), "bert": (models.bert, {"low": LOWEST}), "bytes": (models.fractions, {})}
WRONG = {
    "other weights of an attention": (models.attention, {}, {"seed": 20}),
    "other weights of a layer of BERT": (models.bert, {"low": LOWEST}, {"seed": 9}),
    "a bias dropped": (models.bert, {"low": LOWEST}, {"bias": False}),
    "GELU by tanh": (models.bert, {}, {"gelu": "tanh"}),
    "another eps": (models.bert, {}, {"eps": 1e-5}),
    "halves rounded up": (models.fractions, {}, {"up": True}),
    "quarters rounded up": (models.fractions, {"share": 0.25}, {"up": True}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_file_is_different_although_it_has_masks_or_whole_numbers(xverify, tmp_path, name):
    need("onnx", "onnxruntime", "torch")
    make, same, fault = WRONG[name]
    right, wrong = make(tmp_path / "right.onnx", **same), make(tmp_path / "wrong.onnx", **{**same, **fault})
    inputs = []
    if make is models.bert:  # three keys are masked
        given = {"ids": np.random.default_rng(0).integers(0, 50, (2, 9)), "mask": np.array([[1] * 6 + [0] * 3] * 2)}
        np.savez(tmp_path / "inputs.npz", **given)
        inputs = ["--inputs", tmp_path / "inputs.npz"]
    done = xverify("check", wrong, "--against", right, *inputs, "--json", tmp_path / "result.json")
    assert done.code == 1, done.out + done.err
    found = {row["task"]: row["error"]["verdict"] for row in done.result["rows"]}
    assert found["runtime"] in ("IDENTICAL", "EQUAL")
    assert found["conversion"] == "DIFFERENT"


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_file_with_masks_or_whole_numbers_passes(xverify, tmp_path, name):
    need("onnx", "onnxruntime", "torch")
    make, arguments = RIGHT[name]
    right, same = make(tmp_path / "right.onnx", **arguments), make(tmp_path / "same.onnx", **arguments)
    done = xverify("check", same, "--against", right, "--json", tmp_path / "result.json")
    assert done.code == 0, done.out + done.err
    assert {row["error"]["verdict"] for row in done.result["rows"]} <= {"IDENTICAL", "EQUAL"}


# -- ports --------------------------------------------------------------------------------------------------------------

PORTS = {"attention with rows without a key": models.ATTENTION, "two masks that are added up": models.CAUSAL}


@pytest.mark.parametrize("files", PORTS.values(), ids=PORTS)
@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "EQUAL"), (1.00001, "DIFFERENT"), (1.0001, "DIFFERENT")])
def test_a_wrong_scale_shows_beside_masked_rows(xverify, tmp_path, files, scale, verdict):
    need("torch", "tensorflow")
    port = models.write(tmp_path / "port", files, SCALE=scale)
    done = xverify("run", port, "--subjects", "torch:eager,tensorflow:eager", "--no-timing")
    found = done.row("tensorflow:eager")["error"]
    if scale == 1.00001:
        assert found["verdict"] not in ("IDENTICAL", "EQUAL"), done.out
        return
    assert found["verdict"] == verdict, done.out + done.err
    assert done.code == (0 if verdict == "EQUAL" else 1)
    if verdict == "DIFFERENT":
        assert "the input of `o` is already wrong" in " ".join(done.out.split())


# -- training -----------------------------------------------------------------------------------------------------------

STEPS = {
    "-inf in the loss": (models.INFINITE, {"RATE": 0.1}, {"RATE": 1.0}),
    "-inf in an attention": (models.CAUSAL_STEP, {"RATE": 0.1}, {"RATE": 1.0}),
    "whole numbers as floats": (models.FLOATS, {"RATE": 0.1, "LATER": 0}, {"RATE": 0.1, "LATER": 1}),
    "halves as floats": (models.HALVES, {"RATE": 0.1, "LATER": 0}, {"RATE": 0.1, "LATER": 1}),
}
RECIPES = {"-inf in the loss of a recipe": models.RECIPE, "finfo.min in the loss of a recipe": models.RECIPE_ADDED}
CASES = {
    **{name: (files, right) for name, (files, right, _) in STEPS.items()},
    **{name: (files, {"FACTOR": 1.0}) for name, files in RECIPES.items()},
}
WRONG_CASES = {
    **{name: (files, wrong) for name, (files, _, wrong) in STEPS.items()},
    **{name: (files, {"FACTOR": 1.001}) for name, files in RECIPES.items()},
}


def train(xverify, tmp_path, files, values):
    need("torch", "tensorflow")
    port = models.write(tmp_path / "port", files, **values)
    return xverify(
        "run", port, "--task", "train", "--no-timing", "--subjects", "torch:eager,tensorflow:eager", timeout=600
    )


@pytest.mark.parametrize("name", CASES)
def test_a_right_step_with_masks_trains_equally(xverify, tmp_path, name):
    done = train(xverify, tmp_path, *CASES[name])
    assert done.code == 0, done.out + done.err
    checks = done.row("tensorflow:eager")["training"]["checks"]
    assert {check["verdict"] for check in checks} <= {"IDENTICAL", "EQUAL"}
    assert "UNTESTED" not in done.out


@pytest.mark.parametrize("name", WRONG_CASES)
def test_a_wrong_step_shows_beside_masks(xverify, tmp_path, name):
    done = train(xverify, tmp_path, *WRONG_CASES[name])
    assert done.code == 1, done.out + done.err
    checks = done.row("tensorflow:eager")["training"]["checks"]
    found = {check["name"] for check in checks if check["verdict"] == "DIFFERENT"}
    wanted = {"FACTOR": "gradients", "LATER": "loss", "RATE": "update"}
    assert wanted[max(WRONG_CASES[name][1], key=["RATE", "LATER", "FACTOR"].index)] in found, done.out


def test_a_step_that_differentiates_a_gradient_is_judged(xverify, tmp_path):
    need("torch")
    penalty = """
def loss_of(logits, batch):
    x = (0.5 * batch["x"]).requires_grad_(True)
    (slope,) = torch.autograd.grad(batch["model"](x).sum(), x, create_graph=True)
    return F.cross_entropy(logits, batch["t"]) + ((slope.norm(dim=1) - 1) ** 2).mean()
"""
    files = {name: models.INFINITE[name] for name in ("spec", "torch")}
    start = files["torch"].index("\ndef loss_of"), files["torch"].index("\ndef train_state")
    files["torch"] = files["torch"][: start[0]] + penalty + files["torch"][start[1] :]
    files["torch"] = files["torch"].replace('batch["x"]), batch)', 'batch["x"]), {**batch, "model": model})')
    port = models.write(tmp_path / "port", files)
    done = xverify("run", port, "--task", "train", "--no-timing", "--subjects", "torch:eager")
    assert done.code == 4, done.out + done.err  # it is the reference alone
    assert {check["verdict"] for check in done.row("torch:eager")["training"]["checks"]} <= {"IDENTICAL", "EQUAL"}
