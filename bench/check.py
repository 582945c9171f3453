"""Measures how long `xverify check` takes for three ONNX files: a ResNet-50, a small network, and a graph of 2,000 nodes.

python bench/check.py [ROUNDS] [--keep FOLDER]     default: 3 rounds; the median is printed

The files are made first, with random weights, and kept in FOLDER where one is named. The goals hold on two cores that do nothing
else. The seconds of processor time of all processes tell more on a machine that does something else, too.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

GOALS = {"resnet50.onnx": 5.0, "small.onnx": 2.5, "nodes.onnx": 10.0}  # seconds
NODES, WIDTH = 2000, 64
# The nodes of one block: the operator, its inputs, and its output. x is what the block is given, and y what it returns.
BLOCK = (
    ("ReduceMean", ("x",), "mean"), ("Sub", ("x", "mean"), "centred"), ("Mul", ("centred", "centred"), "squares"),
    ("ReduceMean", ("squares",), "variance"), ("Add", ("variance", "epsilon"), "positive"), ("Sqrt", ("positive",), "deviation"),
    ("Div", ("centred", "deviation"), "normal"), ("MatMul", ("normal", "weight"), "product"), ("Relu", ("product",), "bent"),
    ("Add", ("x", "bent"), "y"),
)  # fmt: skip


def of_torch(model: str, shape: tuple[int, ...], path: Path) -> None:
    """Export a model of torch with random weights. model: a name of torchvision, or "small"."""
    import torch
    from torch import nn

    from xverify.frameworks.torch.torchvision import declare_torchvision_ops

    declare_torchvision_ops(torch)
    import torchvision

    torch.manual_seed(0)
    small = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip
    made = small if model == "small" else getattr(torchvision.models, model)(weights=None)
    torch.onnx.export(made.eval(), (torch.randn(shape),), str(path), input_names=["x"], dynamo=False)


def of_nodes(path: Path) -> None:
    """Write a graph of NODES nodes: layer norms and products of matrices, with residual connections."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random, nodes, constants = np.random.default_rng(0), [], {"epsilon": np.float32(1e-5)}
    for block in range(NODES // len(BLOCK)):
        constants[f"weight{block}"] = random.standard_normal((WIDTH, WIDTH)).astype(np.float32) / WIDTH
        names = {"x": f"y{block - 1}" if block else "x", "epsilon": "epsilon"}
        for operator, inputs, output in BLOCK:
            more = {"axes": [-1]} if operator == "ReduceMean" else {}
            taken = [names.get(each, f"{each}{block}") for each in inputs]
            nodes.append(helper.make_node(operator, taken, [f"{output}{block}"], f"{output}{block}", **more))
    sides = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 16, WIDTH]) for name in ("x", nodes[-1].output[0])
    ]
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "nodes", sides[:1], sides[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def make(folder: Path) -> None:
    """Make the files that are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, shape in (("resnet50", (1, 3, 224, 224)), ("small", (1, 3, 32, 32))):
        if not (folder / f"{name}.onnx").exists():
            of_torch(name, shape, folder / f"{name}.onnx")
    if not (folder / "nodes.onnx").exists():
        of_nodes(folder / "nodes.onnx")


def measured(file: Path) -> tuple[float, float, str]:
    """(seconds, seconds of processor time, what the result file tells) of one check."""
    result = file.with_suffix(".json")
    command = [sys.executable, "-m", "xverify", "check", str(file), "--quiet", "--json", str(result), "--force"]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    elapsed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    found = json.loads(result.read_text())
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in found["timeline"].items())
    cases = max(len({each["case"] for each in row["error"]["tensors"]}) for row in found["rows"])
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return elapsed, busy, f"{found['rows'][0]['error']['verdict']} in {cases} cases; {phases}"


def main(rounds: int, folder: Path) -> None:
    """Print the median of each file, and whether it is within the goal."""
    make(folder)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in GOALS}
    says = {}
    for _ in range(rounds):
        for name in GOALS:
            *seconds, says[name] = measured(folder / name)
            taken[name].append((seconds[0], seconds[1]))
    for name, goal in GOALS.items():
        elapsed, busy = (statistics.median(each) for each in zip(*taken[name]))
        where = "within" if elapsed <= goal else "above"
        print(
            f"{name:14} {elapsed:6.2f} s, {where} the goal of {goal} s; {busy:6.2f} s of processor time; {says[name]}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=3)
    parser.add_argument("--keep", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="xverify-") as place:
        main(arguments.rounds, arguments.keep or Path(place))
