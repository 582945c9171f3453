from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterable

from rich.console import Console

from ..environments import create as making
from ..environments import store as environments
from ..errors import UsageError, XverifyError, nearest
from ..framework import discovery as frameworks
from ..report import progress, tables, terminal
from ..report.text import escape
from ..workload.options import named
from ._arguments import Parser, add

HELP = "make separate environments for frameworks that cannot share one"
GROUP = "models, weights, environments"
EXAMPLE = """`xverify run` uses the environment of a framework that is not installed beside
xverify, or that cannot share one. Environments are in the folder
~/.cache/xverify/environments, or in XVERIFY_ENVIRONMENTS. uv makes them where
it is installed; otherwise venv and pip do. When a framework has no release for
this Python, an older Python is searched for on the path and in pyenv; uv
downloads one when there is none.

examples:
  xverify env create jax      then: xverify run mlp --subjects torch,jax
  xverify env create torch    also for a framework that needs no environment
  xverify env create --needed jittor
      only when Jittor cannot be installed beside xverify in this Python
  xverify env list
  xverify env remove jax"""

EXIT_CODES = {0: "done", 2: "a wrong command line", 3: "the environment could not be made"}


def add_arguments(parser: Parser) -> None:
    """Declare what follows ``xverify env``."""
    below = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    create = below.add_parser(
        "create", help="make environments, or make them again when their pinned packages have changed"
    )
    create.add_argument("names", metavar="NAME", nargs="+", help="see xverify env list")
    create.add_argument("--force", action="store_true", help="make it again even when it is complete")
    create.add_argument(
        "--needed", action="store_true", help="only for frameworks that are missing and have no release for this Python"
    )
    add(create, [named("quiet", help="print no progress", group="options")])
    create.set_defaults(action_main=_create_all)
    listing = below.add_parser("list", help="list the environments that exist, and those that can be made")
    listing.add_argument("--json", action="store_true", help="print JSON, for programs")
    listing.set_defaults(action_main=_list)
    remove = below.add_parser("remove", help="delete an environment")
    remove.add_argument("name", metavar="NAME", help="see xverify env list")
    remove.set_defaults(action_main=_remove)


def main(args: argparse.Namespace) -> int:
    """Do what is asked, and return the exit code."""
    code: int = args.action_main(args, terminal.console())
    return code


def _create_all(args: argparse.Namespace, console: Console) -> int:
    """Make every environment that is named. When one of them cannot be made, the others still are."""
    names = list(dict.fromkeys(_environment(name) for name in args.names))
    # SIGTERM also ends the installer, which would otherwise continue by itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    failures = []
    for name in names:
        if args.needed and not environments.needed(name):
            continue
        try:
            _create(name, args, console)
        except XverifyError as error:
            failures.append(error)
    if len(failures) == 1:
        raise failures[0]
    if failures:
        raise XverifyError(*(line for error in failures for line in error.args))
    return 0


def _environment(name: str) -> str:
    """The environment of this name, or else that of the framework of this name. Raises UsageError."""
    known = environments.pins()
    serving = [environment for environment in known if name in environments.serves(environment)]
    return serving[0] if serving and name not in known else _known(name, known)


def _create(name: str, args: argparse.Namespace, console: Console) -> None:
    existing = environments.find(name)
    if existing and existing.current and not args.force:
        console.print(f"{name} exists already, {escape(_describe(existing))}")
        return
    if existing:
        why = "as asked" if existing.current else "its pins have changed"
        console.print(f"{name} is made again: {why}")
    with progress.progress_listener(args.quiet) as listener:
        made = making.create(name, listener)
    console.print(f"{name} is ready, {escape(_describe(made))}")
    for framework in _served(made):
        adapter = frameworks.load(framework)
        if environments.chosen(adapter) == made:
            continue
        console.print(
            f"[yellow]note:[/] {framework} is installed beside xverify too, and runs from there; to run it from this "
            f"environment: --python {framework}={escape(made.interpreter)}",
        )


def _remove(args: argparse.Namespace, console: Console) -> int:
    complete = [environment.name for environment in environments.find_all()]
    incomplete = [name for name in environments.pins() if (environments.root() / name).is_dir()]
    name = _known(args.name, [*complete, *incomplete])
    folder = environments.root() / name
    freed = making.size(folder)
    making.remove(name)
    console.print(f"{folder} is removed ({_mib(freed)})", markup=False)
    return 0


def _list(args: argparse.Namespace, console: Console) -> int:
    if args.json:
        print(json.dumps(catalogue(), indent=1))
        return 0
    title = f"environments in {environments.root()}"
    table = tables.borderless(title)
    for column in ("name", "frameworks", "python", "size", "interpreter"):
        table.add_column(column, overflow="fold")
    for made in environments.find_all():
        python = escape(made.python) + ("" if made.current else "; [yellow]its pins have changed[/]")
        size = _mib(making.size(made.folder))
        table.add_row(f"[bold]{made.name}[/]", ", ".join(_served(made)), python, size, escape(made.interpreter))
    for name, frameworks_of_it in _available().items():
        remark = f"[dim]does not exist. Type: xverify env create {name}[/]"
        table.add_row(name, ", ".join(frameworks_of_it), "", "", remark)
    console.print(table)
    return 0


def catalogue() -> dict[str, object]:
    """The environments that exist, and those that can be made, as JSON values."""
    return {
        "folder": str(environments.root()),
        "environments": [
            {
                "name": environment.name,
                "frameworks": _served(environment),
                "python": environment.python,
                "current": environment.current,
                "bytes": making.size(environment.folder),
                "path": str(environment.folder),
                "interpreter": environment.interpreter,
                "packages": dict(environment.packages),
            }
            for environment in environments.find_all()
        ],
        "available": _available(),
    }


def _available() -> dict[str, list[str]]:
    """Name of an environment that does not exist and can be made -> the frameworks that it is for."""
    existing = {environment.name for environment in environments.find_all()}
    return {name: environments.serves(name) for name in environments.pins() if name not in existing}


def _known(name: str, known: Iterable[str]) -> str:
    known = sorted(set(known))
    if name not in known:
        listed = f"Known: {', '.join(known)}" if known else "None exists."
        raise UsageError(f"unknown environment {name!r}{nearest(name, known)} {listed}")
    return name


def _served(environment: environments.Environment) -> list[str]:
    """The frameworks that can run in an environment."""
    return [name for name in environments.serves(environment.name) if environment.version(frameworks.load(name))]


def _describe(environment: environments.Environment) -> str:
    served = ", ".join(f"{name} {environment.version(frameworks.load(name))}" for name in _served(environment))
    return (
        f"for {served or 'no framework: its pins name none'}: {environment.interpreter} (Python {environment.python})"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
