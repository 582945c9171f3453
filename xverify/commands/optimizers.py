from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from .. import host
from ..errors import UsageError
from ..framework import discovery as frameworks
from ..report.progress import progress_listener
from ..report.style import STYLES
from ..report.tables import borderless
from ..report.terminal import console
from ..training.optimizer_probe import MODEL, PROBED, Probed, probe
from ..workload.spec import find_model

HELP = "compare the optimizers of all frameworks with torch's mathematics, without a model to train"
EXAMPLE = """examples:
  xverify optimizers
  xverify optimizers --frameworks torch,jittor --json optimizers.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--frameworks", metavar="LIST", help="default: every installed one that xverify trains")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of weights and gradients (default: 0)")
    parser.add_argument("--json", metavar="FILE", help="write the table to a file")
    parser.add_argument("--quiet", action="store_true", help="no progress")


def main(args: argparse.Namespace) -> int:
    """Exit 0 when every optimizer is torch's, or differs in a way that has a name; else 1."""
    if args.json and not Path(args.json).absolute().parent.is_dir():
        raise UsageError(f"--json {args.json}: the folder {Path(args.json).absolute().parent} does not exist")
    folder = find_model(MODEL)
    known = {name: each for name, each in frameworks.load_all().items() if each.trains and folder.file(each.reads())}
    names = args.frameworks.split(",") if args.frameworks else [n for n, a in known.items() if not host.missing(a)]
    strange = [name for name in names if name not in known]
    if strange:
        raise UsageError(f"--frameworks {strange[0]}: xverify trains {', '.join(known)}")
    found: list[Probed] = []
    with progress_listener(args.quiet) as listener, tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        for name in names:
            found += probe(known[name], Path(directory), args.seed, listener)
    if args.json:
        Path(args.json).write_text(json.dumps([_plain(each) for each in found], indent=1) + "\n")
    _print(found, names)
    return int(any(each.verdict == "DIFFERENT" for each in found))


def _plain(each: Probed) -> dict[str, Any]:
    return {**vars(each), "settings": each.settings.to_dict()}


def _print(found: list[Probed], names: list[str]) -> None:
    out = console()
    table = borderless()
    for column in ("optimizer", *names):
        table.add_column(column)
    said: dict[str, str] = {}
    for settings in PROBED:
        cells = []
        for name in names:
            rows = {each.match: each for each in found if each.framework == name and each.settings == settings}
            own, exact = rows[False], rows[True]
            text = own.verdict if own.rho is None else f"{own.verdict} {own.rho:.3g}"
            if own.difference:
                text = f"{own.difference} {own.rho:.3g}"
                said[own.difference] = own.says
            colour = "yellow" if own.difference else STYLES.get(own.verdict, "")
            matched = "" if own.verdict == "EQUAL" else f", matched {exact.rho:.2g}" if exact.rho is not None else ""
            cells.append(f"[{colour}]{text}[/]{matched}" if colour else text + matched)
        table.add_row(settings.says(), *cells)
    out.print(table)
    out.print(
        "\nthe change of every weight over its floor of rounding, the worst of 3 steps from the same state; EQUAL up to 3"
    )
    out.print("matched: with --match-optimizer")
    for name, says in said.items():
        out.print(f"[yellow]{name}[/]: {says}")
    for each in found:
        if each.verdict not in ("EQUAL", "DRIFT"):
            out.print(f"{each.framework}, {each.settings.says()}: {each.says}")
