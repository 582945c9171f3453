from __future__ import annotations

import argparse
import datetime
from contextlib import suppress

from .. import outputs
from ..errors import NotWritten, UsageError
from ..report.options import Page
from ..report.progress import progress_listener
from ..report.terminal import console
from ..reproduce import files
from ..reproduce.notes import catalogue
from ..reproduce.published import EXPERIMENTS, find
from ..reproduce.records import Reproduction, check_scale
from ..reproduce.run import find_data, run_part
from ..reproduce.terminal import print_closing, print_part
from ..workload.declaration import Option, declared
from ..workload.options import HOW, OUTPUT, WHAT, named
from ..writing import is_replaced
from . import _outputs
from ._arguments import Parser, add

HELP = "run a published experiment, and print the published figures beside the measured ones"
GROUP = "verify and time"
EXAMPLE = """The exit code is that of the worst part: a mismatch (1) is worse than a row that
could not run (3). A row that is not in the published table is ignored
when it is unsupported or not installed here; a published row that cannot run
gives 3.

examples:
  xverify reproduce                                     the experiments: question, rows, settings, hardware, duration
  xverify reproduce jittor-method --json r.json --html r.html
  xverify reproduce lstm-ptb --scale 0.1                a tenth of the steps of the same models
  xverify reproduce mlp-mnist --data mnist --repeats 3 --markdown mlp.md"""


OPTIONS = (
    named("data", help="the data set of the experiment, in its own files", group=WHAT, task="", unset="synthetic"),
    Option(
        "repeats", int | None, None, "runs of every part", group=HOW, metavar="N", least=1,
        unset="as published; 1 with --scale below 1",
    ),
    named("json", help="write the result file, after every part and at the end"),
    Option(
        "markdown", str | None, None, "also write the tables as Markdown, after every part", group=OUTPUT,
        metavar="FILE", path="written",
    ),
    *declared(Page),
    named("force"),
    named("quiet"),
)  # fmt: skip
DEFAULTS = {"scale": 1.0, **{each.name: each.default for each in OPTIONS}}


def add_arguments(parser: Parser) -> None:
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="an experiment; when omitted, all experiments are listed"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=DEFAULTS["scale"],
        metavar="S",
        help="make this share of the steps, above 0 and at most 1 (default: 1); models are never made smaller",
    )
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """List the experiments, or run one. The exit code is described in EXAMPLE."""
    if args.name is None:
        given = [f"--{name}" for name, value in DEFAULTS.items() if getattr(args, name) != value]
        if given:
            raise UsageError(f"{given[0]} belongs to an experiment: name one of {', '.join(EXPERIMENTS)}")
        for line in catalogue(EXPERIMENTS.values()):
            console().print(line)
        return 0
    done, directory = _asked(args)

    makers = {"json": files.as_json, "markdown": files.markdown, "html": files.page}
    kept = {kind: path for kind in makers if (path := getattr(args, kind))}

    def keep(done: Reproduction) -> None:
        for kind, path in kept.items():
            if is_replaced(path):
                with suppress(NotWritten):  # the last write tells
                    outputs.write(kind, makers[kind](done), path)

    out = console()
    for part in done.experiment.parts:
        with progress_listener(args.quiet) as listener:
            done = run_part(done, part, directory, listener, keep)
        if not args.quiet:
            print_part(done, part, out)
        if done.stopped:
            break
    print_closing(done, out, args.quiet, args.json)
    for kind, path in kept.items():
        outputs.write(kind, makers[kind](done), path)
    return done.verdict.exit_code


def _asked(args: argparse.Namespace) -> tuple[Reproduction, str | None]:
    """(the reproduction before its first run, the folder of its data set or None). Raises UsageError for a wrong argument."""
    experiment = find(args.name)
    check_scale(args.scale)
    _outputs.check(args, OPTIONS, force=args.force)
    directory, where = find_data(experiment, args.data)
    repeats = experiment.default_repeats(args.scale) if args.repeats is None else args.repeats
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Reproduction(experiment, args.scale, repeats, where, now), directory
