from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from .. import host, installed
from ..environments import store as environments
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..interpreter import program
from ..report import terminal
from ..report.text import escape
from ..version import __version__
from ._arguments import Parser

HELP = "show what is installed, what can run, and how to install what is missing"
GROUP = "this installation"
EXAMPLE = """examples:
  xverify doctor
  xverify doctor --cluster tcp://10.0.0.1:8786
      what would run on each machine of a Dask cluster"""
EXIT_CODES = {
    0: "at least two frameworks can run, as a comparison needs",
    2: "a wrong command line, or a cluster whose machines do not fit together",
    3: "fewer than two frameworks can run",
}

IMPORT_SECONDS = 120  # that an import may take


def add_arguments(parser: Parser) -> None:
    """Declare the one option."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="show what would run on each worker of this scheduler of Dask, instead of here",
    )


def main(args: argparse.Namespace) -> int:
    """Print what is installed, and return a code of EXIT_CODES."""
    console = terminal.console()
    if args.cluster is not None:
        return _cluster(console, args.cluster)
    _machine(console)
    console.print("\n[bold]frameworks[/]")
    ready = [name for name, adapter in frameworks.computing().items() if _framework(console, name, adapter)]
    console.print("\n[bold]tools[/]")
    _compiler(console)
    console.print("\n[bold]next[/]")
    if sum(bool(frameworks.load(name).default_modes) for name in ready) < 2:
        console.print(f"  a comparison needs two frameworks. Type: {escape(installed.extra('all'))}")
        return 3
    console.print("  xverify run mlp        every framework above, in a minute")
    console.print("  xverify run resnet50   a model of realistic size")
    return 0


def _cluster(console: Console, scheduler: str) -> int:
    """Print what would run on each worker of a cluster. Raises UsageError when a sweep could not use it."""
    from ..sweep import cluster, machines

    with cluster.connected(scheduler, None, 0) as client:
        found, resources = cluster.surveyed(client), cluster.announced(client)
    for address, machine in found.items():
        console.print(f"[bold]{escape(machine.name)}[/] {escape(address)}")
        console.print(
            f"  {escape(machine.cpu)}, {machine.cores} cores, {machine.memory_gib} GiB, {machine.system}",
        )
        own = {name: version for name, version in machine.versions.items() if name not in machine.subjects}
        console.print(f"  {escape(', '.join(f'{name} {version}' for name, version in own.items()))}")
        for name, subjects in machine.subjects.items():
            version = machine.versions[name]
            console.print(f"  [green]✓[/] {name:12} {escape(version)}: {escape(', '.join(subjects))}")
    machines.check(found, resources)
    console.print(f"{len(found)} {'machine' if len(found) == 1 else 'machines'}, with the same versions")
    return 0 if len(next(iter(found.values())).subjects) > 1 else 3


def _machine(console: Console) -> None:
    machine = host.describe()
    console.print(f"[bold]xverify {__version__}[/] in {escape(sys.executable)} (Python {machine['python']})")
    console.print(
        f"  {escape(machine['cpu'])}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}"
    )
    console.print(f"  threads: {machine['cores']} for every framework unless --threads gives another number")
    for sentence in installed.foreign(["", *sys.path]):
        console.print(f"  [red]another xverify:[/] {escape(sentence)}")
    if machine["load"] and machine["load"][0] > 0.5:
        console.print(
            f"  [yellow]the machine is busy[/] (load {machine['load'][0]}): intervals of timings will be wide"
        )


def _framework(console: Console, name: str, adapter: type[Framework]) -> bool:
    """Print whether a framework can run, and where, or how to install it. Return whether it can run."""
    missing, environment = host.missing(adapter), environments.chosen(adapter)
    if missing and environment is None:
        what_to_type = f"{', '.join(missing)}. Type: {environments.remedy(adapter)}"
        console.print(f"  [red]✗[/] {name:12} not installed: {escape(what_to_type)}")
        return False
    version = environment.version(adapter) if environment else host.version(adapter)
    console.print(f"  [green]✓[/] {name:12} {escape(str(version))}: {escape(', '.join(adapter.subjects()))}")
    if environment:
        console.print(f"      in {escape(environment.interpreter)} (Python {environment.python})")
        if not environment.current:
            console.print(f"      [yellow]its pins have changed.[/] Type: xverify env create {environment.name}")
    else:
        for line in _particulars(adapter):
            console.print(f"      {line}")
    return True


def _particulars(adapter: type[Framework]) -> list[str]:
    """Lines about a framework that is installed beside xverify."""
    if adapter.name == "torch":
        return _torchvision()
    if adapter.name != "jittor":
        return []
    lines = []
    if not any((Path(sys.prefix) / "lib").glob("libmkldnn*")):
        lines.append(
            "[yellow]no oneDNN wheels: convolutions are slow.[/] Type: pip install onednn-cpu-gomp==2021.2.0 "
            "onednn-devel-cpu-gomp==2021.2.0"
        )
    return [*lines, *filter(None, [adapter.slow_start()])]


def _torchvision() -> list[str]:
    """Lines about a torchvision that is installed and cannot be imported by itself, although xverify's workers import it."""
    if importlib.util.find_spec("torchvision") is None:
        return []
    try:
        done = subprocess.run(
            program(sys.executable, "import torchvision"),
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"[yellow]import torchvision takes over {IMPORT_SECONDS} s[/]"]
    if done.returncode == 0:
        return []
    said = [line.strip() for line in done.stderr.splitlines() if line.strip()] or [f"exit code {done.returncode}"]
    lines = [f"[yellow]import torchvision fails by itself:[/] {escape(said[-1])}"]
    if "torchvision::" in said[-1]:
        lines.append(
            "it is built for another torch; model files can import it, because xverify declares these operators, and scripts of "
            "your own cannot: install the torchvision of this torch, from the same package index"
        )
    return lines


def _compiler(console: Console) -> None:
    """Print whether the compiler that Jittor needs is installed."""
    compiler = shutil.which("g++")
    if compiler is None:
        console.print("  [yellow]✗[/] g++: Jittor compiles its operators with it. On Debian type: apt-get install g++")
        return
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    console.print(f"  [green]✓[/] g++          {escape(version[0] if version else compiler)}")
