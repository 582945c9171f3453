"""Plants faults in the graphs of the suite of floors, and checks right and faulty files.

The relative error of a fault is computed in float64 by onnx's own evaluator, which shares no code with xverify.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
from floor_graphs import GRAPHS
from floor_parts import CLASSES, ITEMS, Array, Draw, Graph, Y
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from xverify.checking.api import check
from xverify.errors import Failed
from xverify.results.file import read
from xverify.results.records import Row, TensorError
from xverify.results.verdicts import Verdict

SIZES = tuple(10.0**-power for power in range(1, 8))
FEW_SIZES = (1e-4, 1e-5, 1e-6)  # of faults in one class, in one item and in one value of a small batch
FEW_ITEMS = 4
# Kind of such a fault -> the limit that is stated for it.
FEW = {"class": "detection_limit_index", "item": "detection_limit_index", "value": "detection_limit_value"}
BATCHES = (ITEMS, 1, 5)
CASES = 2  # input cases of a check with given inputs
OPSET = 17
BY_COMMAND = "masked-class-0-"  # files that are checked through the command line
FIELD = {"weight": "scaled", "bias": "biased"}  # kind of fault -> the field of a graph that names its weight
TYPES = {"float32": ("float", 1), "float64": ("double", 11), "float16": ("float16", 10)}


@dataclass(frozen=True)
class Fault:
    """A change of a graph.

    kind: "weight", "bias" or "text"; or "class", "item" or "value", where one of these is multiplied in the output.
    size: relative; None for a change of one size. swap: for "text".
    """

    kind: str
    size: float | None
    swap: tuple[str, str] = ("", "")

    def __str__(self) -> str:
        return f"{self.kind} {self.size:.0e}" if self.size is not None else f"{self.swap[1].strip().splitlines()[-1]}"

    def factors(self, place: tuple[int, int]) -> Array:
        """What a fault in one class, item or value multiplies the output of a small batch by. place: the item and the class."""
        found = np.ones((1 if self.kind == "class" else FEW_ITEMS, 1 if self.kind == "item" else CLASSES), np.float32)
        found[place[0] % found.shape[0], place[1] % found.shape[1]] += self.size or 0.0
        return found

    def plant(self, graph: Graph, place: tuple[int, int] = (0, 0)) -> Graph:
        """The graph with the fault. place: see ``factors``."""
        if self.kind == "text":
            old, new = self.swap
            assert graph.nodes.count(old) == 1, old
            new = new.replace("{size}", repr(1 + (self.size or 0.0)))
            return replace(graph, nodes=graph.nodes.replace(old, new))
        if self.kind in FEW:
            nodes = re.sub(r"\by = ", "before = ", graph.nodes) + "\n y = Mul(before, factors)"
            return replace(graph, nodes=nodes, weights={**graph.weights, "factors": self.factors(place)})
        name = graph.scaled if self.kind == "weight" else graph.biased
        weight, size = graph.weights[name].astype(np.float64), self.size or 0.0
        if weight.ndim == 0:
            weight = weight * (1 + size)
        elif self.kind == "weight":
            place = (1,) if weight.ndim == 4 else (Ellipsis, 1)
            weight[place] *= 1 + size
        else:
            weight[1] += size
        return replace(graph, weights={**graph.weights, name: weight})


def faults(graph: Graph) -> Iterator[Fault]:
    """All faults of a graph, the largest first."""
    for size in SIZES:
        yield from (Fault(kind, size) for kind in ("weight", "bias") if getattr(graph, FIELD[kind]))
        yield from (Fault("text", size, swap) for swap in graph.swaps if "{size}" in swap[1])
    yield from (Fault("text", None, swap) for swap in graph.swaps if "{size}" not in swap[1])
    if graph.outputs == Y and graph.dtype == "float32" and graph.expects == Verdict.EQUAL.value:
        yield from (Fault(kind, size) for size in FEW_SIZES for kind in FEW)


def model(graph: Graph, dtype: str = "") -> onnx.ModelProto:
    """The graph as an ONNX model. dtype: of its arithmetic; that of the graph when omitted."""
    name, number = TYPES[dtype or graph.dtype]
    declared = [text.replace("float[", f"{name}[") for text in (graph.inputs, graph.outputs)]
    nodes = graph.nodes.replace("{size}", "1").replace("to=T>", f"to={number}>")
    text = f'<ir_version: 8, opset_import: ["" : {OPSET}]> g ({declared[0]}) => ({declared[1]}) {{ {nodes} }}'
    made = onnx.parser.parse_model(text)
    for key, value in graph.weights.items():
        if value.dtype.kind == "f":
            value = value.astype(graph.dtype).astype(dtype or graph.dtype)
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value), key))
    return made


def reordered(made: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """The same model, in which every product with a weight matrix adds its terms in another order."""
    rng, weights = np.random.default_rng(seed), {each.name: each for each in made.graph.initializer}
    nodes = []
    for index, node in enumerate(made.graph.node):
        if node.op_type == "MatMul" and node.input[1] in weights:
            value = numpy_helper.to_array(weights[node.input[1]])
            order = rng.permutation(len(value))
            made.graph.initializer.append(numpy_helper.from_array(order, f"order{index}"))
            made.graph.initializer.append(numpy_helper.from_array(value[order], f"ordered{index}"))
            nodes.append(helper.make_node("Gather", [node.input[0], f"order{index}"], [f"terms{index}"], axis=-1))
            node = helper.make_node("MatMul", [f"terms{index}", f"ordered{index}"], list(node.output))
        nodes.append(node)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def drawn(graph: Graph, seed: int, items: int) -> dict[str, Array]:
    """Input cases of a graph: "CASE/NAME" -> array."""
    rng, found = np.random.default_rng([seed, 7]), {}
    inputs = model(graph).graph.input
    for case in range(CASES):
        for each in inputs:
            shape = tuple(size.dim_value or items for size in each.type.tensor_type.shape.dim)
            dtype = helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type)
            draw = graph.draws.get(each.name, lambda rng, shape: rng.standard_normal(shape))
            found[f"{case}/{each.name}"] = draw(rng, shape).astype(dtype)
    return found


def exact(graph: Graph, inputs: Mapping[str, Array]) -> dict[tuple[int, str], Array]:
    """The outputs in float64, by case and name."""
    made = model(graph, "float64")
    names, found = [each.name for each in made.graph.output], {}
    evaluator = ReferenceEvaluator(made)
    for case in range(CASES):
        fed = {key.partition("/")[2]: value for key, value in inputs.items() if key.startswith(f"{case}/")}
        fed = {key: value.astype(np.float64) if value.dtype.kind == "f" else value for key, value in fed.items()}
        with np.errstate(all="ignore"):
            found.update({(case, name): value for name, value in zip(names, evaluator.run(None, fed))})
    return found


def relative_error(right: Array, wrong: Array) -> float:
    """rms of the change / rms of the values, over the values that a fault changes and that have the size of their median."""
    if right.dtype.kind != "f":
        return math.inf if (right != wrong).any() else 0.0
    with np.errstate(invalid="ignore"):
        change = np.abs(wrong - right)
    changed = np.isfinite(change) & (change > 1e-3 * change[np.isfinite(change)].max(initial=0.0))
    if not changed.any():
        return 0.0
    size, change = np.abs(right[changed]), change[changed]
    with np.errstate(divide="ignore"):
        decades = np.floor(np.log10(size))
    typical = decades == np.floor(np.log10(np.median(size))) if np.median(size) else np.ones(size.shape, bool)
    scale = float(change[typical].max(initial=0.0)) if typical.any() else 0.0
    if not scale:
        return 0.0
    largest = float(size[typical].max())
    return (
        scale
        / largest
        * float(np.sqrt(np.square(change[typical] / scale).mean() / np.square(size[typical] / largest).mean()))
        if largest
        else math.inf
    )


@dataclass(frozen=True)
class Answer:
    """The answer to one file.

    verdicts: task -> verdict, or the status of a row that has none. tensors: of the comparison with the reference. limit: the
    detection limit of the row.
    """

    verdicts: Mapping[str, str]
    reasons: Mapping[str, str]
    tensors: Sequence[TensorError] = ()
    limit: float | None = None

    @classmethod
    def of(cls, rows: Sequence[Row]) -> Answer:
        found = {row.task: str(row.error.verdict.value) if row.error else str(row.status) for row in rows}
        reasons = {row.task: (row.error.reason if row.error else row.reason) or "" for row in rows}
        error = next((row.error for row in rows if row.task == "conversion"), None)
        return cls(found, reasons, error.tensors if error else (), error.detection_limit if error else None)


def ask(file: Path, reference: Path, inputs: Mapping[str, Array] | None, **settings: Any) -> Answer:
    """Check a file against another. inputs: input cases; None lets the check draw them."""
    if inputs is not None:
        np.savez(file.with_suffix(".npz"), **inputs)
        settings["inputs"] = file.with_suffix(".npz")
    if file.name.startswith(BY_COMMAND):
        return Answer.of(by_command(file, reference, settings))
    return Answer.of(check(file, against=reference, timeout=120.0, **settings).rows)


def by_command(file: Path, reference: Path, settings: Mapping[str, Any]) -> Sequence[Row]:
    """The same by the command line. Raises Failed when the exit code is not that of the verdicts."""
    result, words = file.with_suffix(".json"), list[str]()
    for name, value in settings.items():
        shapes = value.items() if name == "shape" else ()
        words += [word for key, size in shapes for word in ("--shape", f"{key}={'x'.join(map(str, size))}")]
        words += [] if name == "shape" else [f"--{name}", str(value)]
    command = [
        sys.executable,
        "-m",
        "xverify",
        "check",
        file,
        "--against",
        reference,
        "--json",
        result,
        "--quiet",
        *words,
    ]
    done = subprocess.run(command, cwd=file.parent, capture_output=True, text=True, timeout=600, check=False)
    if not result.is_file():
        raise Failed(f"exit code {done.returncode}: {done.stderr.strip()}")
    rows = read(result).rows
    passes = all(row.error and row.error.verdict <= Verdict.DRIFT for row in rows)
    if passes != (done.returncode == 0):
        raise Failed(
            f"exit code {done.returncode} with {', '.join(str(row.error and row.error.verdict) for row in rows)}"
        )
    return rows


def right_run(name: str, seed: int, folder: Path) -> tuple[bool, Answer, str]:
    """(whether it passes, the answer, the conditions) of a right file with weights, inputs, batch and threads of a seed."""
    graph, items, threads = GRAPHS[name](Draw(seed)), BATCHES[seed % len(BATCHES)], 1 + seed % 2
    made = model(graph)
    paths = [folder / f"{name}-{seed}-{kind}.onnx" for kind in ("reference", "right")]
    onnx.save(made, paths[0])
    onnx.save(reordered(made, seed) if seed % 4 >= 2 else made, paths[1])
    inputs = drawn(graph, seed, items) if graph.given or seed % 2 else None
    shapes = {} if inputs is not None else {"shape": _shapes(made, items)}
    answer = ask(paths[1], paths[0], inputs, seed=seed, threads=threads, **shapes)
    passing = {Verdict.IDENTICAL.value, Verdict.EQUAL.value, graph.expects}
    passed = all(verdict in passing for verdict in answer.verdicts.values())
    order = ", other order of sums" if seed % 4 >= 2 else ""
    return (
        passed,
        answer,
        f"seed {seed}, batch {items}, {threads} threads, {'given' if inputs else 'drawn'} inputs{order}",
    )


def _shapes(made: onnx.ModelProto, items: int) -> dict[str, tuple[int, ...]]:
    return {
        each.name: tuple(size.dim_value or items for size in each.type.tensor_type.shape.dim)
        for each in made.graph.input
    }


def faulty_run(name: str, fault: Fault, seed: int, folder: Path) -> tuple[Answer, list[tuple[float, float]]]:
    """The answer to a faulty file, and (relative error of the fault, detection limit) of each output of each case."""
    graph = GRAPHS[name](Draw(seed))
    inputs = drawn(graph, seed, FEW_ITEMS if fault.kind in FEW else ITEMS)
    right, place = exact(graph, inputs), (0, 0)
    if fault.kind in FEW:  # the largest value has at least the usual size of its item and class
        place = tuple(int(each) for each in np.unravel_index(np.abs(right[0, "y"]).argmax(), (FEW_ITEMS, CLASSES)))
    wrong = fault.plant(graph, place)
    paths = [folder / f"{name}-{seed}-{kind}.onnx" for kind in ("reference", f"{fault.kind}-{fault.size}")]
    for path, each in zip(paths, (graph, wrong)):
        onnx.save(model(each), path)
    answer = ask(paths[1], paths[0], inputs, seed=seed)
    if fault.kind in FEW:
        size = float(fault.factors(place).max()) - 1
        stated = [getattr(each, FEW[fault.kind]) for each in answer.tensors]
        return answer, [(size, limit) for limit in stated if limit is not None]
    other = exact(wrong, inputs)
    errors = {key: relative_error(value, other[key]) for key, value in right.items()}
    pairs = [
        (errors[each.case, each.output], each.detection_limit if each.local_ratio else each.detection_limit_worst)
        for each in answer.tensors
        if each.detection_limit is not None
    ]
    return answer, pairs
