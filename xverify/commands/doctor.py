from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from rich.console import Console

from .. import __version__, frameworks, host
from ..framework import Framework
from ..report import terminal

HELP = "what is installed, what would run, and what to type for what is missing"
EXAMPLE = "examples:\n  xverify doctor"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    pass


def main(args: argparse.Namespace) -> int:
    """Exit 0 when two frameworks can run, which is what a comparison needs; else 3."""
    console = terminal.console()
    machine = host.describe()
    console.print(f"[bold]xverify {__version__}[/] in {sys.executable} (Python {machine['python']})")
    console.print(f"  {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}")
    console.print(f"  threads: {machine['cores']} for every framework unless --threads says otherwise")
    if machine["load"] and machine["load"][0] > 0.5:
        console.print(f"  [yellow]the machine is busy[/] (load {machine['load'][0]}): timings will be wide")
    console.print("\n[bold]frameworks[/]")
    ready = []
    for name, adapter in frameworks.load_all().items():
        absent = host.missing(adapter)
        if absent:
            console.print(
                f"  [red]✗[/] {name:12} not installed: {', '.join(absent)}. Type: pip install 'xverify\\[{name}]'"
            )
            continue
        ready.append(name)
        console.print(f"  [green]✓[/] {name:12} {host.version(adapter)}: {', '.join(adapter.subjects())}")
        for line in _particulars(adapter):
            console.print(f"      {line}")
    console.print("\n[bold]tools[/]")
    _compiler(console)
    console.print("\n[bold]next[/]")
    real = [name for name in ready if frameworks.load(name).usual]
    if len(real) < 2:
        console.print("  a comparison needs two frameworks. Type: pip install 'xverify\\[all]'")
        return 3
    console.print("  xverify run mlp        a minute, every framework above\n  xverify run resnet50   the real thing")
    return 0


def _particulars(adapter: type[Framework]) -> list[str]:
    if adapter.name != "jittor":
        return []
    lines = []
    if not any((Path(sys.prefix) / "lib").glob("libmkldnn*")):
        lines.append(
            "[yellow]no oneDNN wheels: convolutions are slow.[/] Type: pip install onednn-cpu-gomp==2021.2.0 "
            "onednn-devel-cpu-gomp==2021.2.0"
        )
    lines.append(adapter.slow_start())
    return lines


def _compiler(console: Console) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        console.print("  [yellow]✗[/] g++: Jittor compiles its operators with it. On Debian type: apt-get install g++")
        return
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False).stdout.splitlines()
    console.print(f"  [green]✓[/] g++          {version[0] if version else compiler}")
