from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from ..errors import UsageError
from ..report.progress import progress_listener
from ..report.terminal import console
from ..reproduce import files
from ..reproduce.notes import catalogue
from ..reproduce.published import EXPERIMENTS, find
from ..reproduce.records import Reproduction, check_scale
from ..reproduce.run import find_data, run_part
from ..reproduce.terminal import print_closing, print_part

HELP = "run a published experiment, and print what was published beside what is measured"
EXAMPLE = """examples:
  xverify reproduce                                     the experiments: question, rows, settings, hardware, duration
  xverify reproduce jittor-method --json r.json
  xverify reproduce lstm-ptb --scale 0.1                a tenth of the steps of the same models
  xverify reproduce mlp-mnist --data mnist --repeats 3 --markdown mlp.md

The exit code is that of the worst part: a mismatch (1) is worse than a row that could not run (3). A row that the published table
does not have does not count when it is unsupported or not installed here; a published row that cannot run is 3."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="an experiment; without: the list of them")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        metavar="S",
        help="this share of the steps, above 0 and at most 1 (default: 1); models are never made smaller",
    )
    parser.add_argument(
        "--data", metavar="DIR", help="the experiment's data set, in its own files (default: synthetic)"
    )
    parser.add_argument(
        "--repeats", type=int, metavar="N", help="runs of every part (default: as published; 1 with --scale below 1)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the result file, after every part and at the end")
    parser.add_argument("--markdown", metavar="FILE", help="write the tables as Markdown, after every part, too")
    parser.add_argument("--quiet", action="store_true", help="print the verdict's line alone, and no progress")


def main(args: argparse.Namespace) -> int:
    """List the experiments, or run one; exit as EXAMPLE says."""
    if args.name is None:
        for line in catalogue(EXPERIMENTS.values()):
            console().print(line, soft_wrap=True)
        return 0
    done, directory = _asked(args)

    def keep(done: Reproduction) -> None:
        if args.json:
            files.write(done, args.json)
        if args.markdown:
            files.write_markdown(done, args.markdown)

    out = console()
    for part in done.experiment.parts:
        with progress_listener(args.quiet) as listener:
            done = run_part(done, part, directory, listener, keep)
        if not args.quiet:
            print_part(done, part, out)
        if done.stopped:
            break
    print_closing(done, out, args.quiet, args.json)
    return done.verdict.exit_code


def _asked(args: argparse.Namespace) -> tuple[Reproduction, str | None]:
    """(the experiment before its first run, the folder of its data set or None). Raises UsageError for a wrong argument."""
    experiment = find(args.name)
    check_scale(args.scale)
    if args.repeats is not None and args.repeats < 1:
        raise UsageError(f"--repeats is {args.repeats}: it must be at least 1")
    for option, file in (("json", args.json), ("markdown", args.markdown)):
        _check_writable(option, file)
    directory, where = find_data(experiment, args.data)
    repeats = experiment.default_repeats(args.scale) if args.repeats is None else args.repeats
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Reproduction(experiment, args.scale, repeats, where, now), directory


def _check_writable(option: str, file: str | None) -> None:
    if file is None:
        return
    if Path(file).is_dir():
        raise UsageError(f"--{option} {file} is a folder: name a file in it")
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"--{option} {file}: the folder {Path(file).absolute().parent} does not exist")
