from __future__ import annotations

import argparse
import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..engine.run import run
from ..errors import UsageError, XverifyError
from ..progress import Listener
from ..report.progress import progress_listener
from ..report.terminal import console
from ..reproduce import report
from ..reproduce.records import EXPERIMENTS, Experiment, Outcome, Part, Reproduction, check_scale, find, readable
from ..results.records import Result
from ..workload import datasets as data
from ..workload.spec import find_model

HELP = "run a published experiment, and print what was published beside what is measured"
EXAMPLE = """examples:
  xverify reproduce                                     the experiments: question, rows, settings, hardware, duration
  xverify reproduce jittor-method --json r.json
  xverify reproduce lstm-ptb --scale 0.1                a tenth of the steps of the same models
  xverify reproduce mlp-mnist --data mnist --repeats 3 --markdown mlp.md

The exit code is the worst of all parts': a mismatch, then a row that could not run. A row that the published table does not have,
and that is unsupported or not installed here, counts for nothing; a published row that cannot run is 3."""


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
    if args.name is None:
        for line in report.catalogue(EXPERIMENTS.values()):
            console().print(line, soft_wrap=True)
        return 0
    experiment = find(args.name)
    check_scale(args.scale)
    if args.repeats is not None and args.repeats < 1:
        raise UsageError(f"--repeats is {args.repeats}: it must be at least 1")
    for option, file in (("json", args.json), ("markdown", args.markdown)):
        _check_writable(option, file)
    directory, says = _data(experiment, args.data)
    done = Reproduction(
        experiment,
        args.scale,
        experiment.usual_repeats(args.scale) if args.repeats is None else args.repeats,
        says,
        datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    )

    def keep(done: Reproduction) -> None:
        if args.json:
            report.write(done, args.json)
        if args.markdown:
            report.write_markdown(done, args.markdown)

    out = console()
    for part in experiment.parts:
        with progress_listener(args.quiet) as listener:
            done = _run(done, part, directory, listener, keep)
        if not args.quiet:
            report.show(done, part, out)
        if done.stopped:
            break
    report.close(done, out, args.quiet, args.json)
    return {"PASS": 0, "FAIL": 1, "ERROR": 3, "INCONCLUSIVE": 4}[done.verdict]


def _run(
    done: Reproduction, part: Part, directory: str | None, listener: Listener, keep: Callable[[Reproduction], None]
) -> Reproduction:
    """All repeats of a part. What was measured is kept after each, whatever becomes of the next."""
    experiment = done.experiment
    expected = readable(part.duration(done.scale))
    for repeat in range(done.repeats):
        place = f"part {experiment.place(part) + 1} of {len(experiment.parts)}"
        place += f", repeat {repeat + 1} of {done.repeats}" if done.repeats > 1 else ""
        listener.note(f"{place}: {part.title}, about {expected}")
        try:
            result = run(
                part.model,
                [entry.subject for entry in part.entries],
                listener=listener,
                **part.settings(done.scale, directory),
            )
            outcome, stopped = Outcome(part, repeat, result), _interrupted(result)
        except KeyboardInterrupt:
            outcome, stopped = Outcome(part, repeat, failure="interrupted by the user"), True
        except (XverifyError, OSError) as error:
            if isinstance(error, UsageError) and not done.outcomes:
                raise  # nothing is lost, and so the user is told at once
            outcome, stopped = Outcome(part, repeat, failure=str(error)), False
        done = replace(done, outcomes=(*done.outcomes, outcome))
        if stopped:
            done = replace(done, stopped=f"interrupted in {place}: what had been measured by then is here")
        keep(done)
        if stopped:
            break
    return done


def _interrupted(result: Result) -> bool:
    return any(note.startswith("interrupted") for note in result.notes)


def _data(experiment: Experiment, given: str | None) -> tuple[str | None, str]:
    """(the data set's folder, or None for synthetic batches; where batches come from, for the report).

    The data are read once, before anything is measured: what does not fit is told at once.
    """
    if not experiment.data:
        if given is not None:
            raise UsageError(f"{experiment.name} was published on random data: leave --data {given} out")
        return None, "random, from a seed"
    found, installed = given, ""
    if given is None and experiment.installed and Path(experiment.installed).is_dir():
        found, installed = experiment.installed, "found on this machine: "
    if found is None:
        return None, f"synthetic, from a seed: no real {experiment.data} was given (--data DIR)"
    says = [
        data.read(Path(found), find_model(part.model).spec, part.batch, 0, part.cases).kind
        + f"; {part.cases} batches of it take turns"
        for part in experiment.parts
        if part.task == "train"
    ]
    return found, installed + "; ".join(dict.fromkeys(says))


def _check_writable(option: str, file: str | None) -> None:
    if file is None:
        return
    if Path(file).is_dir():
        raise UsageError(f"--{option} {file} is a folder: name a file in it")
    if not Path(file).absolute().parent.is_dir():
        raise UsageError(f"--{option} {file}: the folder {Path(file).absolute().parent} does not exist")
