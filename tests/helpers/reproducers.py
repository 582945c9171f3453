"""Makes reproducers with a wrong runtime, runs their scripts, and tells whether their pieces fail by themselves."""

import json
import os
import subprocess
import sys
from pathlib import Path

import onnx
from onnx import helper, numpy_helper

from xverify.checking.reproducer_files import FILES

WRONG = Path(__file__).parent / "wrongruntime"
PIECE = sorted(FILES)


def plant(tmp_path, monkeypatch, **fault):
    """Put a runtime with this fault in the place of ONNX Runtime."""
    monkeypatch.setenv("PLANTED_FAULT", str(tmp_path / "fault.json"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(WRONG), os.environ.get("PYTHONPATH")])))
    (tmp_path / "fault.json").write_text(json.dumps(fault))


def check(xverify, tmp_path, *arguments):
    """Check files, and return how the command ended and the rows of its result."""
    file = tmp_path / "r.json"
    done = xverify("check", *arguments, "--reproducer", tmp_path / "piece", "--json", file)
    return done, json.loads(file.read_text())["rows"] if file.exists() else []


def ran(folder, right=False):
    """Run the script of a reproducer as a maintainer would. right: with the real runtime."""
    variables = {name: value for name, value in os.environ.items() if not right or name != "PYTHONPATH"}
    command = [sys.executable, str(folder / "reproduce.py")]
    return subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, check=False)


def operators(folder, name="model.onnx"):
    return [node.op_type for node in onnx.load(folder / name).graph.node]


def assert_fails_alone(folder, *kinds):
    """The piece has these operators; it is wrong on the wrong runtime, and right on the right one."""
    assert sorted(each.name for each in folder.iterdir()) == PIECE
    assert operators(folder) == list(kinds)
    wrong, right = ran(folder), ran(folder, right=True)
    assert (wrong.returncode, right.returncode) == (1, 0), (wrong, right)
    assert "WRONG" in wrong.stdout
    assert "error" in wrong.stdout
    assert "limit" in wrong.stdout
    assert "right, 0 of " in right.stdout


def small(path, nodes, inputs, outputs, constants=(), opset=17):
    """Write a graph of these nodes. inputs, outputs: name -> (type, shape)."""
    values = [
        [helper.make_tensor_value_info(name, *each) for name, each in sides.items()] for sides in (inputs, outputs)
    ]
    written = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "small", *values, written)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path
