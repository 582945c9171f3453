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

HELP = "environments of their own for frameworks that cannot share one"
EXAMPLE = """examples:
  xverify env create jax      install JAX apart from the others, then: xverify run mlp --subjects torch,jax
  xverify env create torch    also one that could share
  xverify env list
  xverify env remove jax

`xverify run` takes a framework from its environment when it is not installed beside xverify, or cannot share.
Environments stand in ~/.cache/xverify/environments; XVERIFY_ENVIRONMENTS names another place. uv makes them where it is installed,
else venv and pip."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    below = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = below.add_parser(
        "create", help="make an environment, or make it anew when its pinned packages have changed"
    )
    create.add_argument("name", metavar="NAME")
    create.add_argument("--force", action="store_true", help="make it anew whatever is there")
    create.add_argument("--quiet", action="store_true", help="no progress")
    create.set_defaults(action_main=_create)
    listing = below.add_parser("list", help="what is there, and what could be")
    listing.add_argument("--json", action="store_true", help="as JSON, for programs")
    listing.set_defaults(action_main=_list)
    remove = below.add_parser("remove", help="delete an environment")
    remove.add_argument("name", metavar="NAME")
    remove.set_defaults(action_main=_remove)


def main(args: argparse.Namespace) -> int:
    code: int = args.action_main(args, terminal.console())
    return code


def _create(args: argparse.Namespace, console: Console) -> int:
    name = _known(args.name, environments.pins())
    there = environments.find(name)
    if there and there.current and not args.force:
        console.print(f"{name} is there already, {_describe(there)}", soft_wrap=True)
        return 0
    if there:
        why = "as asked" if there.current else "its pins have changed"
        console.print(f"{name} is made anew: {why}", soft_wrap=True)
    # An end that is asked for politely also ends the installer, which would go on by itself.
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
        table.add_row(name, ", ".join(serves), "", "", f"[dim]not there. Type: xverify env create {name}[/]")
    console.print(table)
    return 0


def catalogue() -> dict[str, Any]:
    """The environments that are there, and those that can be made, as JSON values."""
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
    """The frameworks that it is for and has whole."""
    return [name for name in environments.serves(environment.name) if environment.version(frameworks.load(name))]


def _describe(environment: environments.Environment) -> str:
    served = ", ".join(f"{name} {environment.version(frameworks.load(name))}" for name in _served(environment))
    return (
        f"for {served or 'no framework: its pins lack them'}: {environment.interpreter} (Python {environment.python})"
    )


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"
