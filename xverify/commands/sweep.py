from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..report.options import Page, Tables
from ..report.outputs import of_results
from ..sweep.options import AXES, SweepSettings, of_runs
from ..workload.declaration import declared
from ..workload.options import GROUPS, WHAT, named
from . import _arguments
from . import _outputs as outputs
from ._arguments import Parser

if TYPE_CHECKING:
    from ..sweep.matrix import Cell
    from ..sweep.planning import Planned
    from ..sweep.run import Swept, Watcher
    from ..sweep.store import Store

HELP = "run many models, tasks and batch sizes, and keep one result file for each"
GROUP = "verify and time"
EXAMPLE = """A cell whose result is in the folder, with the same settings, files, weights
and versions, is not run again. An interrupted sweep goes on with the same
command. The exit code is that of the worst cell.

examples:
  xverify sweep resnet50 vit-tiny --batch 1,8 --task forward,train
      eight cells, each with every installed framework
  xverify sweep nightly.toml
      the cells of a file: [matrix], [settings], [[include]], [[exclude]]
  xverify sweep nightly.toml --dry-run
  xverify sweep nightly.toml --results /srv/results --html nightly.html --junit nightly.xml
  xverify sweep mlp vit-tiny --effort standard --force
  xverify sweep nightly.toml --scheduler tcp://10.0.0.1:8786 --results /shared/results
      on the machines of a Dask cluster, each with one worker:
      dask worker tcp://10.0.0.1:8786 --nworkers 1 --nthreads 1 --resources machine=1"""

RUN = of_runs()
SUBJECTS = named("subjects")
OPTIONS = (*RUN, SUBJECTS, *declared(SweepSettings), *declared(Page), *declared(Tables), named("quiet"))
SUFFIX = ".toml"


def add_arguments(parser: Parser) -> None:
    for title in GROUPS:
        parser.group(title)
    parser.group(WHAT).add_argument(
        "models", metavar="FILE|MODEL", nargs="+",
        help="a .toml file that lists the cells, or models of the zoo and model folders",
    )  # fmt: skip
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Run the cells that have no result, print the matrix, and return the exit code of the worst cell."""
    from ..sweep import planning
    from ..sweep.run import Watcher, sweep
    from ..sweep.store import Store
    from ..sweep.terminal import TerminalWatcher

    cells = _cells(args)
    _check(args, cells)
    if args.scheduler and args.cluster:
        raise UsageError("--scheduler names a cluster, and --cluster starts one: leave one of them out")
    if args.share and not (args.scheduler or args.cluster):
        raise UsageError("--share is for the machines of a cluster: name one with --scheduler or --cluster")
    watcher = Watcher() if args.quiet else TerminalWatcher()
    if args.scheduler or args.cluster:
        return _on_cluster(args, cells, watcher)
    planned = planning.checked(cells, planning.plan(cells))
    if args.dry_run:
        return _list(planned, Path(args.results), args.force)
    store = Store(Path(args.results))
    _check(args, cells, planned, store)
    with store.locked():
        done = sweep(planned, store, force=args.force, retries=args.retries, watcher=watcher)
    return _report(args, planned, store, done)


def _on_cluster(args: argparse.Namespace, cells: list[Cell], watcher: Watcher) -> int:
    from ..sweep import planning
    from ..sweep.cluster import Cluster, connected
    from ..sweep.store import Store

    store = Store(Path(args.results))
    with store.locked(), connected(args.scheduler, args.cluster, args.retries) as client:
        cluster = Cluster(client, store, args.share)
        planned = planning.checked(cells, cluster.plan(cells))
        if args.dry_run:
            return _list(planned, store.folder, args.force)
        _check(args, cells, planned, store)
        done = cluster.sweep(planned, force=args.force, retries=args.retries, watcher=watcher)
    return _report(args, planned, store, done)


def _check(
    args: argparse.Namespace, cells: list[Cell], planned: Sequence[Planned] = (), store: Store | None = None
) -> None:
    """Raise UsageError when an output, or the result of a cell, would destroy something. --force runs cells again, and no more."""
    from ..framework import reads
    from ..outputs import Output, Read
    from ..sweep.sharing import outputs_of

    settings = {repr((of.weights, of.data, of.python)): vars(of) for of in (each.settings for each in cells)}
    read = [
        *(Read("FILE", Path(name)) for name in args.models if name.endswith(SUFFIX)),
        *reads.of_run(dict.fromkeys(each.model for each in cells), (), {}),
        *chain.from_iterable(reads.of_options(RUN, values) for values in settings.values()),
    ]
    results = outputs_of(args.share) if args.share else []
    results += [Output("the lock", store.lock)] if store else []
    for each, path in [(each, store.path(each)) for each in planned] if store else ():
        # Its name is xverify's own, so a file there is the result of the cell, or what is left of it; a link may lead elsewhere.
        results.append(Output(f"the result of {each.name},", path, "json" if path.is_symlink() else ""))
    outputs.check(args, OPTIONS, read, results, summary=True)


def _report(args: argparse.Namespace, planned: list[Planned], store: Store, done: Swept) -> int:
    from ..report import content
    from ..report.terminal import console
    from ..sweep.terminal import print_matrix

    cells = [(each, result) for each in planned if (result := store.result(each)) is not None]
    results = [result for _, result in cells]
    missing = len(planned) - len(cells)
    show = partial(print_matrix, cells, missing, done, str(args.results), console(), args.quiet)
    outputs.deliver(args, of_results(results), show)
    code = content.worst(results).exit_code
    return code or 3 if done.stopped or missing else code


def _cells(args: argparse.Namespace) -> list[Cell]:
    """The cells that the user asks for. Raises UsageError."""
    from ..sweep import matrix

    asked = _arguments.values(args, OPTIONS)
    given = {each.name: asked[each.name] for each in RUN if each.name not in AXES and asked[each.name] != each.default}
    if args.subjects is not None:
        given[SUBJECTS.name] = tuple(args.subjects)
    axes = {name: asked[name] for name in AXES if asked[name]}
    files = [name for name in args.models if name.endswith(SUFFIX)]
    if not files:
        return matrix.combined({"model": list(dict.fromkeys(args.models)), **axes}, given)
    if len(args.models) > 1:
        raise UsageError(f"{files[0]} lists the cells of the sweep: name one such file, or models")
    for name in axes:
        raise UsageError(f"--{name} belongs to models on the command line: write {name} = {axes[name]} in {files[0]}")
    return matrix.read(Path(files[0]), given)


def _list(planned: list[Planned], folder: Path, force: bool) -> int:
    """Print every cell, and what would happen to it."""
    from ..report.tables import headed
    from ..report.terminal import console
    from ..report.text import escape
    from ..sweep.store import State, Store

    store = Store(folder, make=False)
    made = headed()
    for title in ("cell", "subjects", "now"):
        made.add_column(title, no_wrap=title == "cell")
    says = {State.DONE: "has a result", State.PARTIAL: "would go on", State.MISSING: "would run"}
    found = [store.found(each) for each in planned]
    states = [State.MISSING if force else each.state for each in found]
    for each, state, there in zip(planned, states, found):
        now = says[state] + (f": {there.problem}" if there.problem else "")
        made.add_row(escape(each.name), escape(", ".join(each.settings.subjects)), escape(now))
    out = console()
    out.print(made)
    left = sum(state != State.DONE for state in states)
    out.print(f"{len(planned)} {'cell' if len(planned) == 1 else 'cells'}, of which {left} would run")
    return 0
