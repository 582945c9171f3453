from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ..errors import UsageError
from ..report.options import Page, Tables
from ..report.outputs import of_results
from ..workload.declaration import declared
from ..workload.options import GROUPS, WHAT, Display, RunArguments, RunSettings
from . import _arguments
from . import _outputs as outputs
from ._arguments import Parser
from ._results import measured, tell_next

HELP = "verify and time a model in several frameworks"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify run resnet50                 every installed framework
  xverify run mlp --subjects torch:eager,jittor --json r.json
  xverify run resnet50 --effort standard --json r.json
      several process runs, for verdicts on speed; add --resume to continue after a crash
  xverify run resnet50 --batch 8 --warmup 10 --rerun 100
      the setting of the Jittor performance test
  xverify run ./my_port --batch 8,1,7 --sizes seq=16,1,33
      at several sizes; seq is an axis that spec.py names
  xverify run ./my_port                your own folder: spec.py and a file for
                                       each framework
  xverify run mlp --task train --optimizer adam
      whole training steps: gradients, update, statistics, loss curve
  xverify run mlp --task train --curve loss.svg
      the loss curves as a picture, too
  xverify run mlp --task train --steps 200 --seeds 5
      a longer loss curve, and the end losses over five seeds
  xverify run ./my_port --task train --dropout-masks
      the same dropout masks in every framework
  xverify run mlp --task train --ranks 2 --plan fsdp
      two processes, compared with the step of one on the whole batch
  xverify run mlp --task train --ranks 4 --launcher ssh --hosts node1,node2 --rendezvous node1:29500
      ranks on two machines
  xverify run ./my_llama --task decode
      one sequence with the cache, in chunks, in a batch and with padding
  xverify run mlp --html report.html --junit results.xml
      the report for people, and for a CI server
  xverify run ./my_port --no-timing    the verdict alone
  xverify run ./my_port --receipt receipts/my_port
      keep all that the run is made from, for xverify replay
  xverify run mlp --weights trained.pt --python jittor=envs/jittor/bin/python"""

RUN = (*declared(RunArguments), *declared(RunSettings))
OPTIONS = (*RUN, *declared(Page), *declared(Tables), *declared(Display))


def add_arguments(parser: Parser) -> None:
    for title in GROUPS:
        parser.group(title)
    parser.group(WHAT).add_argument(
        "model", metavar="MODEL|FOLDER", help="a model of the zoo (xverify list), or a model folder"
    )
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Run the model, print the report, and return the exit code of the verdict."""
    # Imported here, because the help does not need the engine.
    from ..engine.api import run
    from ..framework import reads
    from ..report import curves
    from ..report.progress import progress_listener
    from ..report.terminal import console, render

    read = (*reads.of_model("MODEL", args.model), *reads.of_subjects(args.subjects or ()))
    outputs.check(args, OPTIONS, read, summary=True, force=args.force)
    asked = _arguments.values(args, OPTIONS)
    if args.curve:
        if "train" not in args.task.split(","):
            raise UsageError(f"--curve {args.curve}: there is no loss without --task train")
        curves.check(Path(args.curve))
    with progress_listener(args.quiet) as listener:
        chosen = {option.name: asked[option.name] for option in RUN}
        found = measured(lambda: run(args.model, listener=listener, **chosen))
    result, problem, out = found.result, found.problem, console()
    file = None if problem else args.json
    show = partial(render, result, out, args.quiet, file, by_layer=args.layers, details=args.details)
    problem = outputs.delivered(args, of_results([result]), show) or problem
    if args.curve and curves.drawable(result):
        curves.draw(result, Path(args.curve))
    elif args.curve:
        out.print(f"{args.curve} is not drawn: no subject has a loss curve", markup=False)
    tell_next(found, args, out)
    if problem:
        raise problem
    return result.exit_code
