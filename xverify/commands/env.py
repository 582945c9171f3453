from __future__ import annotations

import argparse
import json
import signal
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from ..environments import create as making
from ..environments import store as environments
from ..errors import UsageError, nearest
from ..framework import discovery as frameworks
from ..report import progress, tables, terminal
from ..workload.options import named
from ._arguments import Parser, add

HELP = "make separate environments for frameworks that cannot share one"
GROUP = "models, weights, environments"
EXAMPLE = """examples:
  xverify env create jax      then: xverify run mlp --subjects torch,jax
  xverify env create torch    also for a framework that could share
  xverify env list
  xverify env remove jax

`xverify run` uses the environment of a framework that is not installed beside
xverify, or that cannot share one. Environments are in the folder
~/.cache/xverify/environments, or in XVERIFY_ENVIRONMENTS. uv makes them where
it is installed; otherwise venv and pip do."""

EXIT_CODES = {0: "done", 2: "a wrong command line", 3: "the environment could not be made"}


def add_arguments(parser: Parser) -> None:
    below = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    create = below.add_parser(
        "create", help="make an environment, or make it again when its pinned packages have changed"
    )
    create.add_argument("name", metavar="NAME", help="see xverify env list")
    create.add_argument("--force", action="store_true", help="make it again even when it is complete")
    add(create, [named("quiet", help="print no progress", group="options")])
    create.set_defaults(action_main=_create)
    listing = below.add_parser("list", help="list the environments that exist, and those that can be made")
    listing.add_argument("--json", action="store_true", help="print JSON, for programs")
    listing.set_defaults(action_main=_list)
    remove = below.add_parser("remove", help="delete an environment")
    remove.add_argument("name", metavar="NAME", help="see xverify env list")
    remove.set_defaults(action_main=_remove)


def main(args: argparse.Namespace) -> int:
    code: int = args.action_main(args, terminal.console())
    return code


def _create(args: argparse.Namespace, console: Console) -> int:
    name = _known(args.name, environments.pins())
    there = environments.find(name)
    if there and there.current and not args.force:
        console.print(f"{name} exists already, {_describe(there)}", soft_wrap=True)
        return 0
    if there:
        why = "as asked" if there.current else "its pins have changed"
        console.print(f"{name} is made again: {why}", soft_wrap=True)
    # SIGTERM must also end the installer, which would otherwise go on by itself.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with progress.progress_listener(args.quiet) as listener:
        made = making.create(name, listener)
    console.print(f"{name} is ready, {_describe(made)}", soft_wrap=True)
    for framework in _served(made):
        adapter = frameworks.load(framework)
        if environments.chosen(adapter) == made:
            continue
        console.print(
            f"[yellow]note:[/] {framework} is installed beside xverify too, and runs from there; to run it from here: "
            f"--python {framework}={made.interpreter}",
            soft_wrap=True,
        )
    return 0


def _remove(args: argparse.Namespace, console: Console) -> int:
    there = [environment.name for environment in environments.find_all()]
    half_made = [name for name in environments.pins() if (environments.root() / name).is_dir()]
    name = _known(args.name, [*there, *half_made])
    folder = environments.root() / name
    freed = making.size(folder)
    making.remove(name)
    console.print(f"{folder} is removed ({_mib(freed)})", soft_wrap=True)
    return 0


def _list(args: argparse.Namespace, console: Console) -> int:
    found = catalogue()
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    table = tables.borderless(f"environments in {found['folder']}")
    for column in ("name", "serves", "python", "size", "interpreter"):
        table.add_column(column, overflow="fold")
    for made in found["environments"]:
        python = made["python"] + ("" if made["current"] else "; [yellow]its pins have changed[/]")
        serves = ", ".join(made["frameworks"])
        table.add_row(f"[bold]{made['name']}[/]", serves, python, _mib(made["bytes"]), made["interpreter"])
    for name, serves in found["available"].items():
        table.add_row(name, ", ".join(serves), "", "", f"[dim]not made. Type: xverify env create {name}[/]")
    console.print(table)
    return 0


def catalogue() -> dict[str, Any]:  # JSON
    """The environments that exist, and those that can be made, as JSON values."""
    made = environments.find_all()
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
            for environment in made
        ],
        "available": {
            name: environments.serves(name)
            for name in environments.pins()
            if name not in {environment.name for environment in made}
        },
    }


def _known(name: str, known: Iterable[str]) -> str:
    known = sorted(set(known))
    if name not in known:
        listed = f"Known: {', '.join(known)}" if known else "None is there."
        raise UsageError(f"unknown environment {name!r}{nearest(name, known)} {listed}")
    return name


def _served(environment: environments.Environment) -> list[str]:
    """The frameworks that this environment is for, and that it has completely."""
    return [name for name in environments.serves(environment.name) if environment.version(frameworks.load(name))]


def _describe(environment: environments.Environment) -> str:
    served = ", ".join(f"{name} {environment.version(frameworks.load(name))}" for name in _served(environment))
    return (
        f"for {served or 'no framework: its pins lack them'}: {environment.interpreter} (Python {environment.python})"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
