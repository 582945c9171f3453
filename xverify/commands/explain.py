from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from ..errors import UsageError, nearest
from ..report import layers
from ..report.terminal import console
from ..results.file import read
from ..results.records import Error, LayerError, Layers, Row, Training

HELP = "the layers of a result: which differs first, by how much, and what it behaves as"
EXAMPLE = """examples:
  xverify run mlp --json result.json; xverify explain result.json
  xverify explain result.json --subject jittor --faults"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="RESULT.json", help="what xverify run --json wrote")
    parser.add_argument("--subject", metavar="NAME", help="one subject alone (default: all)")
    parser.add_argument("--faults", action="store_true", help="leave out the layers that are EQUAL")


def main(args: argparse.Namespace) -> int:
    """Exit as the run did."""
    result = read(Path(args.file))
    rows = result["rows"]
    if args.subject is not None:
        names = [row["subject"] for row in rows]
        if args.subject not in names:
            raise UsageError(
                f"{args.file} has no subject {args.subject!r}{nearest(args.subject, names)} It has: {', '.join(names)}"
            )
        rows = [row for row in rows if row["subject"] == args.subject]
    out = console()
    reference = result["reference"]
    out.print(f"[bold]{result['model']}[/]: {result['verdict']}; floor: {reference['floor']}")
    for row in rows:
        layers.render(_row(row), out, args.faults)
    untested = reference.get("untested") or []
    if untested:
        out.print(
            f"\n{len(untested)} of {len(untested) + reference['tested']} weights and constants UNTESTED: a fault in them would not "
            f"show on these inputs: {', '.join(untested[:8])}{', …' if len(untested) > 8 else ''}"
        )
    return {"PASS": 0, "FAIL": 1, "ERROR": 3}.get(result["verdict"], 4)


def _row(values: dict[str, Any]) -> Row:
    """A row of a result file, as far as its layers need it. Infinity is null in JSON."""

    def layers_of(values: dict[str, Any]) -> Layers | None:
        found = values.get("layers")
        if found is None:
            return None
        infinite = ("ratio", "channel_ratio", "input_ratio")
        records = (
            LayerError(**each | {name: math.inf for name in infinite if each[name] is None}) for each in found["layers"]
        )
        return Layers(**found | {"layers": tuple(records)})

    error, training = values.get("error"), values.get("training")
    kept = {
        name: values[name] for name in ("subject", "framework", "mode", "task", "device", "batch", "status", "reason")
    }
    return Row(
        **kept,
        error=error
        and Error(error["verdict"], error["reason"], noise_ratio=error["noise_ratio"], layers=layers_of(error)),
        training=training and Training(training["optimizer"], layers=layers_of(training)),
    )
