from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict

from .. import host
from ..environments import store as environments
from ..errors import UsageError, nearest
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..processes.space import temporary_folder
from ..report.progress import progress_listener
from ..report.style import STYLES
from ..report.tables import borderless
from ..report.terminal import console
from ..report.text import escape
from ..results.file import write_json
from ..results.records import plain
from ..results.verdicts import Verdict
from ..training.optimizer_probe import MODEL, PROBED, Probed, probe
from ..verdict.limits import EQUAL_RHO
from ..workload.options import named
from ..workload.spec import find_model
from . import _outputs as outputs
from ._arguments import Parser, add

HELP = "compare the optimizers of all frameworks with torch's formulas, without training a model"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify optimizers
  xverify optimizers --frameworks torch,jittor --json optimizers.json"""


OPTIONS = (
    named("seed", help="seed of weights and gradients"),
    named("json", help="write the table to a file"),
    named("force"),
    named("quiet", help="print no progress"),
)


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "--frameworks",
        metavar="LIST",
        help="the frameworks (default: every installed framework that xverify can train)",
    )
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Print the table. Return 1 when some optimizer is DIFFERENT from torch's formula and its known variants, otherwise 0."""
    outputs.check(args, OPTIONS, force=args.force)
    adapters = _chosen(args.frameworks)
    probed: list[Probed] = []
    with progress_listener(args.quiet) as listener, temporary_folder() as directory:
        for adapter in adapters:
            probed += probe(adapter, directory, args.seed, listener)
    _print(probed, [adapter.name for adapter in adapters])
    if args.json:
        write_json(plain([asdict(each) for each in probed]), args.json)
    return int(any(each.verdict == Verdict.DIFFERENT for each in probed))


def _chosen(names: str | None) -> list[type[Framework]]:
    """The adapters to probe. names: frameworks, as on the command line; None: every installed framework that can be trained."""
    folder = find_model(MODEL)
    known = {name: each for name, each in frameworks.load_all().items() if each.trains and folder.file(each.reads())}
    if not names:
        return [each for each in known.values() if environments.chosen(each) or not host.missing(each)]
    chosen = names.split(",")
    strange = [name for name in chosen if name not in known]
    if strange:
        raise UsageError(
            f"--frameworks is {strange[0]!r}{nearest(strange[0], known)} xverify trains {', '.join(known)}"
        )
    return [known[name] for name in chosen]


def _print(found: Sequence[Probed], names: Sequence[str]) -> None:
    out = console()
    by_run = {(each.framework, each.settings, each.match): each for each in found}
    table = borderless()
    for column in ("optimizer", *names):
        table.add_column(column)
    for settings in PROBED:
        cells = [_cell(by_run[name, settings, False], by_run[name, settings, True]) for name in names]
        table.add_row(settings.says(), *cells)
    out.print(table)
    out.print(
        "\nnumbers: the largest residual / noise floor of the change of a weight and of its state, over 3 steps that are each "
        f"judged separately; EQUAL up to {EQUAL_RHO:g}"
    )
    out.print("matched: the same number with --match-optimizer")
    own = [by_run[name, settings, False] for settings in PROBED for name in names]
    for variant, says in {each.difference: each.says for each in own if each.difference}.items():
        out.print(f"[yellow]{escape(variant)}[/]: {escape(says)}")
    for each in found:
        if each.verdict not in (Verdict.EQUAL, Verdict.DRIFT):
            out.print(f"{each.framework}, {each.settings.says()}: {each.says}", markup=False)


def _cell(own: Probed, matched: Probed) -> str:
    """One cell of the table: the framework's own optimizer, and the matched one when the own is not EQUAL."""
    name = own.difference or own.verdict
    text = escape(name) if own.rho is None else f"{escape(name)} {own.rho:.3g}"
    colour = STYLES.get(Verdict.DRIFT if own.difference else own.verdict, "")
    if colour:
        text = f"[{colour}]{text}[/]"
    if own.verdict == Verdict.EQUAL or matched.rho is None:
        return text
    return f"{text}, matched {matched.rho:.2g}"
