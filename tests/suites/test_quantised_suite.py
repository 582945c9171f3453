"""A sample of the suite of quantised files: right ones are EQUAL, and mistakes in weights and ranges are named with their layer."""

import subprocess
import sys
from pathlib import Path

import pytest
from helpers.marks import needs_vnni

pytest.importorskip("onnxruntime")
pytestmark = needs_vnni
SUITES = Path(__file__).parents[2] / "suites"


def run(*arguments):
    """The lines of the suite about each file; it must pass."""
    command = [sys.executable, SUITES / "quantised.py", "--seeds", "1", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout.splitlines()[:-1]


@pytest.mark.slow
def test_a_transformer_of_which_single_steps_fall_the_other_way_is_equal_and_its_weights_are_compared():
    right, scaled = run("--networks", "transformer", "--schemes", "static", "--mistakes", "right,larger scale")
    assert right.startswith("transformer, static, right: EQUAL")
    assert "up/MatMulAddFusion: " in scaled
    assert "all of its values are × 1.3" in scaled


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["static", "static operators"])
def test_ranges_that_contradict_each_other_or_the_reference_are_named(scheme):
    undone, one_sided = run(
        "--networks", "perceptron", "--schemes", scheme, "--mistakes", "undone relu,one sided scale"
    )
    assert "fc2/MatMulAddFusion" in undone
    assert "the reference has Relu 'relu1' before it" in undone
    assert "lets negative numbers through" in undone
    assert "is read with the scale" in one_sided
    assert "so its values are × 1.3" in one_sided


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["per channel", "blocks of 4 bits, QDQ", "dynamic"])
def test_steps_that_are_coarser_than_necessary_are_a_warning_with_their_cost(scheme):
    right, coarse, *wide = run(
        "--networks", "perceptron", "--schemes", scheme, "--mistakes", "right,coarse weights,wide range"
    )
    assert ": EQUAL; " in right
    assert ": DRIFT, named; " in coarse
    assert "fc2: the scale of its weights is " in coarse
    assert " times larger than they need, which costs " in coarse
    assert len(wide) == (scheme == "per channel")
    assert all(
        "fc2: the range of the input r1 is 18.5 times wider than its values in these inputs" in each for each in wide
    )
