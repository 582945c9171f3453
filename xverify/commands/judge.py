from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from .. import writing
from ..errors import UsageError
from ..outputs import Output, check
from ..report.options import Page, Tables
from ..report.outputs import of_results
from ..workload import declaration
from ..workload.declaration import declared
from ..workload.options import named
from . import _arguments
from . import _outputs as outputs
from ._arguments import Parser
from ._results import measured, tell_next

HELP = "judge calls of a model that were recorded on another machine"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify judge --recorder xverify_recorder.py
      write the file that records: it needs numpy and the framework alone,
      and can be copied to any machine
  xverify judge run.safetensors --reference ./my_port --weights trained.pt
      what a GPU server recorded, against a model folder, layer by layer
  xverify judge run.safetensors --reference torch=model.py:build --weights own
      against code, without a folder
  xverify judge rank0.safetensors rank1.safetensors --reference ./my_port
      the parts of one batch, which several processes computed"""

RECORDER = Path(__file__).parents[1] / "frameworks" / "capture" / "xverify_recorder.py"
SETTINGS = (
    named("weights", unset="those of the capture, else the folder's"),
    *(
        named(name)
        for name in ("trust", "max_weights", "max_seconds", "strict", "require", "threads", "timeout", "memory")
    ),
)
OPTIONS = (
    *SETTINGS,
    *(named(name) for name in ("json", "force", "layers", "details", "quiet")),
    *declared(Page),
    *declared(Tables),
)


def add_arguments(parser: Parser) -> None:
    group = parser.group("what to judge")
    group.add_argument(
        "captures",
        nargs="*",
        metavar="CAPTURE",
        help="what xverify_recorder.py wrote: NAME.safetensors; of several ranks, all; or a dump of transformers' model debugger "
        "(..._FULL_TENSORS.json), or golden logits (.jsonl)",
    )
    group.add_argument(
        "--reference", metavar="MODEL", help="a model folder, a model of the zoo, or torch=FILE.py:FUNCTION"
    )
    group.add_argument(
        "--names", metavar="TABLE", help="the table of names.toml that has the names of its layers and weights"
    )
    group.add_argument("--recorder", metavar="FILE", help="write the file that records a model, and judge nothing")
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Judge the captures, print the report, and return the exit code of the verdict."""
    if args.recorder is not None:
        return _write_recorder(args)
    asked = _arguments.values(args, OPTIONS)
    declaration.check(SETTINGS, asked)
    if not args.captures:
        raise UsageError(
            "name a capture: xverify judge NAME.safetensors --reference MODEL; --recorder FILE writes what records one"
        )
    if args.reference is None:
        raise UsageError(
            "--reference is missing: name the model folder, or torch=FILE.py:FUNCTION, that the capture is compared with"
        )
    from ..engine.captures import judge
    from ..framework import reads
    from ..report.progress import progress_listener
    from ..report.terminal import console, render

    read = [*(reads.of_file("CAPTURE", each) for each in args.captures), *reads.of_model("--reference", args.reference)]
    outputs.check(args, OPTIONS, read, summary=True, force=args.force)
    settings = {each.name: asked[each.name] for each in SETTINGS}
    with progress_listener(args.quiet) as listener:
        found = measured(
            lambda: judge(
                args.captures,
                args.reference,
                names=args.names,
                json=args.json,
                force=args.force,
                listener=listener,
                **settings,
            )
        )
    result, problem, out = found.result, found.problem, console()
    file = None if problem else args.json
    show = partial(render, result, out, args.quiet, file, by_layer=args.layers, details=args.details)
    problem = outputs.delivered(args, of_results([result]), show) or problem
    tell_next(found, args, out)
    if problem:
        raise problem
    return result.exit_code


def _write_recorder(args: argparse.Namespace) -> int:
    """Write the recorder to the file of --recorder."""
    if args.captures or args.reference is not None:
        raise UsageError("--recorder writes a file and judges nothing: leave the captures and --reference out")
    path = Path(args.recorder)
    writing.check("--recorder", path)
    check([Output("--recorder", path, "recorder")], [], args.force)
    writing.write_text(RECORDER.read_text(encoding="utf-8"), path)
    print(f"{path} is written: copy it to the machine where the model runs; its first lines say how it is used")
    return 0
