"""The command line. Every ``NAME.py`` here is the command NAME: HELP, EXAMPLE, add_arguments(parser), main(args) -> exit code."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console

from .. import __version__
from ..errors import XverifyError
from ..results.verdicts import exit_codes

EXIT_CODES = exit_codes()


def commands() -> dict[str, ModuleType]:
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return {name: import_module(f"{__package__}.{name}") for name in names}


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="xverify",
        description="Load identical weights into several deep-learning frameworks, and report FPS beside output error.",
        epilog=f"example: xverify run resnet50 --subjects torch:eager,jittor\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"xverify {__version__}")
    below = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in commands().items():
        sub = below.add_parser(
            name,
            help=module.HELP,
            description=module.HELP,
            epilog=f"{module.EXAMPLE}\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
        sub.set_defaults(main=module.main)
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    args = parser().parse_args(argv)
    try:
        code: int = args.main(args)
    except XverifyError as error:
        Console(stderr=True, highlight=False).print(f"[bold red]xverify {args.command}:[/] ", end="")
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("xverify: interrupted", file=sys.stderr)
        return 3
    except BrokenPipeError:  # the reader of our output has gone, as `| head` does
        sys.stderr.close()
        return 0
    return code
