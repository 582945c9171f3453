"""Training of a model whose item is its whole input, and whose targets have the names of the outputs, from the command line."""

import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

GRAPH = Path(__file__).parents[1] / "ports" / "edge_graph"


@pytest.mark.parametrize(("new", "verdict"), [("target, num", "EQUAL"), ("source, num", "DIFFERENT")])
def test_a_graph_is_trained(xverify, tmp_path, new, verdict):
    folder = tmp_path / "graph"
    shutil.copytree(GRAPH, folder)
    port = folder / "tensorflow.py"
    port.write_text(port.read_text().replace("sent, target, num", f"sent, {new}"))
    done = xverify("run", folder, "--task", "train", "--subjects", "torch:eager,tensorflow:eager", "--no-timing")
    checks = {check["name"]: check["verdict"] for check in done.row("tensorflow:eager")["training"]["checks"]}
    assert (checks["loss"], checks["gradients"]) == (verdict, verdict)
