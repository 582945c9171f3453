"""What the evaluation of a graph imports: not the compiler of torch, which takes a second."""

import subprocess
import sys

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
import numpy as np
from onnx import TensorProto, helper
from xverify.replay.graph.judge.noise import noise
from xverify.replay.graph.model import Graph

sides = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
graph = helper.make_graph([helper.make_node("Softmax", ["x"], ["y"])], "g", sides[:1], sides[1:])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
found = noise(Graph(model, "."), {"x": np.random.default_rng(0).standard_normal((4, 8)).astype("f")})["y"]
assert found.noise.min() > 0
print("torch._dynamo" in sys.modules)
"""


def test_the_noise_of_a_softmax_needs_no_compiler(tmp_path):
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "False\n"), done.stderr
