"""Wrong kernels in quantised graphs are found at their node, and steps that fall the other way accuse no seed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
SUITES = Path(__file__).parents[2] / "suites"


def checked(*options):
    """What the suite prints of the perceptron: the right file, then each wrong kernel."""
    command = [sys.executable, SUITES / "kernels.py", "--networks", "perceptron", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    right, *lines, _ = done.stdout.splitlines()
    assert "right: IDENTICAL" in right
    return lines


@pytest.mark.slow
def test_a_wrong_kernel_is_different_at_its_node_although_half_a_step_would_excuse_the_outputs():
    lines = checked("--schemes", "static", "--faults", "dequantises x 1.01,rounds down")
    assert len(lines) == 4
    for everywhere, fused in zip(lines[::2], lines[1::2]):
        assert "(everywhere)" in everywhere
        assert ": DIFFERENT, named; " in everywhere
        assert "(fused)" in fused
        assert ": EQUAL, within half a step; " in fused  # the limit of what outputs alone tell


@pytest.mark.slow
def test_a_wrong_fused_kernel_is_different_where_it_changes_more_than_half_a_step():
    (line,) = checked("--schemes", "static operators", "--faults", "dequantises x 1.1", "--where", "fused")
    assert ": DIFFERENT; " in line


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_no_seed_accuses_dynamic_quantisation_on_a_runtime_that_shows_no_nodes(xverify, tmp_path, monkeypatch, seed):
    """With seed 1 some steps fall the other way, by 6,060 times the noise of a few perturbed evaluations."""
    pytest.importorskip("openvino")
    monkeypatch.syspath_prepend(str(SUITES))
    from quantised_files import NETWORKS, SCHEMES

    model = SCHEMES["dynamic per channel"].quantise(NETWORKS["transformer"](2).model(), tmp_path)
    onnx.save(model, tmp_path / "file.onnx")
    done = xverify("check", tmp_path / "file.onnx", "--on", "openvino", "--seed", seed, "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    (row,) = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert row["error"]["verdict"] in ("EQUAL", "DRIFT")
    if row["error"]["verdict"] == "DRIFT":
        assert "half a step at each quantised value changes the outputs by as much" in row["error"]["reason"]
