"""Plants wrong kernels into ONNX Runtime, and checks right quantised files with them: each must be found, and named.

python suites/kernels.py [--networks LIST] [--schemes LIST] [--faults LIST] [--where LIST] [--markdown]

A wrong kernel is the right one in a graph that is changed after the file was opened. With ``--where everywhere`` it is wrong in
every session, so that its node must be DIFFERENT. With ``--where fused`` it is wrong in the optimised session alone, as a wrong
fused kernel is: no node shows it, and the outputs must. The exit code is 1 when a fault everywhere is not found at its node, or a
right kernel is.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import onnx
import pool
from quantised_files import NETWORKS, SCHEMES
from tables import conclude, named

from xverify.checking.api import check
from xverify.results.records import Row

RIGHT = "right"
PLUGIN = Path(__file__).with_name("kernels_plugin.py")
RUNTIME = "wrong-kernels"  # what the plugin calls its runtime
# Fault -> the operators in which it is planted.
FAULTS = {
    "dequantises x 1.002": ("DequantizeLinear",),
    "dequantises x 1.01": ("DequantizeLinear",),
    "dequantises x 1.1": ("DequantizeLinear",),
    "zero point + 1": ("DequantizeLinear", "QLinearConv", "QLinearMatMul"),
    "rounds down": ("QuantizeLinear",),
    "rescales x 1.002": ("QLinearConv", "QLinearMatMul"),
    "rescales x 1.01": ("QLinearConv", "QLinearMatMul"),
    "drops the zero point": ("ConvInteger", "MatMulInteger"),
    "drops the bias": ("Conv", "Gemm", "QLinearConv"),
    "result x 1.001": ("Conv", "MatMul", "Gemm", "Relu", "Add"),
    "result x 1.01": ("Conv", "MatMul", "Gemm", "Relu", "Add"),
}
SCHEMES_USED = ("static", "static operators", "dynamic")


@dataclass(frozen=True)
class Answer:
    """What the check of one file says.

    named: whether the first wrong node is the planted one. steps: whether half a step at each quantised value excuses it.
    """

    network: str
    scheme: str
    fault: str
    where: str
    node: str
    verdict: str
    named: bool
    steps: bool
    ratio: float

    @property
    def good(self) -> bool:
        if self.fault == RIGHT:
            return self.verdict in ("IDENTICAL", "EQUAL")
        # A layer norm takes a constant out again: then the node is told, and the outputs are the right ones to the last bit.
        return self.where == "fused" or (self.verdict in ("DIFFERENT", "IDENTICAL") and self.named)

    def __str__(self) -> str:
        how = f"{', named' if self.named else ''}{', within half a step' if self.steps else ''}"
        where = f"{self.network}, {self.scheme}, {self.fault}{f' ({self.where}) in {self.node}' if self.node else ''}"
        return f"{'' if self.good else 'WRONG '}{where}: {self.verdict}{how}; {self.ratio:.3g} x noise"


def targets(model: onnx.ModelProto, fault: str) -> str:
    """The node in which a fault is planted: the middle one of those that compute activations; "" where there is none."""
    if fault == "drops the zero point":  # that of the inputs; behind a ReLU it is 0
        return next((node.name for node in model.graph.node if node.op_type in FAULTS[fault]), "")
    constants = {tensor.name for tensor in model.graph.initializer}
    used = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    found = [
        node.name
        for node in model.graph.node
        if node.op_type in FAULTS[fault] and node.input[0] not in constants and used & set(node.output)
        if fault != "drops the bias" or _biased(node)
    ]
    return found[len(found) // 2] if found else ""


def _biased(node: onnx.NodeProto) -> bool:
    return len(node.input) > (8 if node.op_type == "QLinearConv" else 2)


def judge(file: Path, names: tuple[str, str], fault: str, where: str, node: str) -> Answer:
    """Check one file with one wrong kernel."""
    Path(os.environ["WRONG_KERNEL"]).write_text(json.dumps({"fault": fault, "where": where, "node": node}))
    (row,) = check(file, on=RUNTIME, timeout=300.0).rows
    return Answer(*names, fault, where, node, *_found(row, node))


def _found(row: Row, node: str) -> tuple[str, bool, bool, float]:
    error = row.error
    if error is None:
        return row.status, False, False, 0.0
    first = error.layers.first if error.layers is not None else None
    steps = "half a step at each quantised value" in (error.reason or "")
    return str(error.verdict), bool(node) and first is not None and first.layer == node, steps, error.noise_ratio or 0.0


def answers(networks: list[str], schemes: list[str], faults: list[str], places: list[str]) -> Iterator[Answer]:
    """The answers on all files with all faults."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as place:
        plugins = Path(place) / "formats"
        plugins.mkdir()
        (plugins / "onnx-wrong.py").write_text(PLUGIN.read_text())
        os.environ["XVERIFY_FORMATS"] = str(plugins)
        os.environ["WRONG_KERNEL"] = str(Path(place) / "fault.json")
        for name in networks:
            for kind in schemes:
                folder = Path(place) / f"{name}-{kind}"
                folder.mkdir()
                model = SCHEMES[kind].quantise(NETWORKS[name](0).model(), folder)
                file = folder / "file.onnx"
                onnx.save(model, file)
                yield judge(file, (name, kind), RIGHT, "", "")
                for fault in faults:
                    node = targets(model, fault)
                    for where in places if node else ():
                        yield judge(file, (name, kind), fault, where, node)


def table(found: list[Answer]) -> Iterator[str]:
    """A row for each fault: how many files have it, how many are found, and how many half a step excuses."""
    yield "| wrong kernel | where | files | DIFFERENT | named | within half a step |"
    yield "|---|---|---|---|---|---|"
    for fault, where in dict.fromkeys((each.fault, each.where) for each in found):
        these = [each for each in found if (each.fault, each.where) == (fault, where)]
        counts = (sum(each.verdict == "DIFFERENT" for each in these), sum(each.named for each in these))
        yield f"| {fault} | {where} | {len(these)} | {counts[0]} | {counts[1]} | {sum(each.steps for each in these)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="networks (default: all of them)")
    parser.add_argument("--schemes", default=",".join(SCHEMES_USED), help="schemes (default: %(default)s)")
    parser.add_argument("--faults", default=",".join(FAULTS), help="faults (default: all of them)")
    parser.add_argument("--where", default="everywhere,fused", help="everywhere, fused or both (default: both)")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation")
    asked = parser.parse_args()
    known = {"networks": NETWORKS, "schemes": SCHEMES, "faults": FAULTS, "where": ("everywhere", "fused")}
    chosen = [named(parser, f"--{name}", getattr(asked, name), every) for name, every in known.items()]
    begun, found = time.monotonic(), []
    with pool.lend():
        for each in answers(*chosen):
            print(each, flush=True)
            found.append(each)
    wrong = [each for each in found if not each.good]
    if asked.markdown:
        print("\n".join(table(found)))
    return conclude(len(found), "checks", len(wrong), begun)


if __name__ == "__main__":
    sys.exit(main())
