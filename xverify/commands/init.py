from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from ..report.text import escape
from ..scaffold.options import InitSettings
from ..workload.declaration import declared
from ..workload.options import WHAT
from . import _arguments
from ._arguments import Parser

HELP = "write a model folder for a model in torch, with first ports"
GROUP = "models, weights, environments"
EXAMPLE = """examples:
  xverify init my_port --from torch=model.py:build --input x=N,3,32,32 --port tensorflow
  xverify init my_port --from torch=model.py:Net --input ids=N,16:int64:0:1000
      whole numbers are drawn from 0 to 999
  xverify init my_port --from model.py --port tensorflow
      inputs like those that example_inputs of model.py returns
  xverify init my_port --from model.py --input ids=N,seq:int64:0:1000 --sizes seq=16
      an axis with a name, so that xverify run my_port --sizes seq=16,33 works"""
EXIT_CODES = {0: "the folder is written", 2: "a wrong command line", 3: "the model could not be built or called"}
OPTIONS = declared(InitSettings)


def add_arguments(parser: Parser) -> None:
    parser.group(WHAT).add_argument("folder", metavar="FOLDER", help="the new model folder")
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Write the folder, and print what is in it and what is missing."""
    from ..report.progress import progress_listener
    from ..report.terminal import console
    from ..scaffold.api import begin

    asked = _arguments.values(args, OPTIONS)
    with progress_listener(False) as listener:
        begun = begin(Path(args.folder), InitSettings(**asked), listener)
    out = console()
    for file in begun.files:
        problem = begun.missing.get(file.name)
        out.print(escape(f"wrote {file}" + (f": incomplete: {problem}" if problem else "")))
    for note in begun.notes:
        out.print(escape(f"Note: {note}"))
    out.print(escape(f"next: {shlex.join(['xverify', 'run', str(begun.folder)])}"))
    return 0
