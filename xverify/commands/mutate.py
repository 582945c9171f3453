from __future__ import annotations

import argparse
import json
from pathlib import Path

from ..errors import UsageError, nearest
from ..mutation.forward import mutate
from ..mutation.records import Score, Trial, TrialOutcome
from ..mutation.training import mutate_training
from ..reference.request import TASKS
from ..report.progress import progress_listener
from ..report.tables import borderless, markdown
from ..report.terminal import console

HELP = "plant known porting faults in a model, and see whether the verdict catches, finds and explains each"
EXAMPLE = """examples:
  xverify mutate resnet18 vit-tiny lstm-cell unet-small mobilenet-v3-small
  xverify mutate mlp --per-kind 3 --seed 1 --json score.json
  xverify mutate mlp resnet18 --task train"""

COLUMNS = ("model", "planted", "caught", "layer named", "explained", "UNTESTED", "missed", "clean runs", "false alarms")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", nargs="+", metavar="MODEL|FOLDER", help="models of the zoo, or folders with a torch.py"
    )
    parser.add_argument("--batch", type=int, default=2, metavar="N", help="items a call (default: 2)")
    parser.add_argument(
        "--task", default="forward", metavar="TASK", help="forward: layers' faults; train: those of training code"
    )
    parser.add_argument(
        "--per-kind", type=int, default=1, metavar="N", help="layers drawn for each kind of fault (default: 1)"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of weights, inputs and layers (default: 0)"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="threads of the port (default: all cores)")
    parser.add_argument("--json", metavar="FILE", help="write every trial to a file")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--quiet", action="store_true", help="print the table alone")


def main(args: argparse.Namespace) -> int:
    """Exit 0 when every visible fault was caught and every clean run was EQUAL; else 1."""
    if args.per_kind < 1:
        raise UsageError(f"--per-kind is {args.per_kind}: it must be at least 1")
    if args.json and not Path(args.json).absolute().parent.is_dir():
        raise UsageError(f"--json {args.json}: the folder {Path(args.json).absolute().parent} does not exist")
    if args.task not in TASKS:
        raise UsageError(f"--task is {args.task!r}{nearest(args.task, TASKS)} Known: {', '.join(TASKS)}")
    scores: list[Score] = []
    for model in args.models:
        scores.append(_score(args, model))
        if args.json:
            Path(args.json).write_text(json.dumps([score.to_dict() for score in scores], indent=1) + "\n")
    if args.markdown:
        print("\n".join(markdown(COLUMNS, table(scores))))
    else:
        _print(scores, args.quiet)
    return int(any(score.count(TrialOutcome.MISSED) or score.alarms for score in scores))


def _score(args: argparse.Namespace, model: str) -> Score:
    with progress_listener(args.quiet) as listener:
        if args.task == "train":
            return mutate_training(model, batch=args.batch, seed=args.seed, threads=args.threads, listener=listener)
        return mutate(
            model, batch=args.batch, seed=args.seed, per_kind=args.per_kind, threads=args.threads, listener=listener
        )


def table(scores: list[Score]) -> list[list[str]]:
    """The rows of the table: one a model, and their sum."""
    rows = [(score.model, _counts(score)) for score in scores]
    if len(rows) > 1:
        rows.append(("all", [sum(column) for column in zip(*(counts for _, counts in rows))]))
    return [[name, *map(str, counts)] for name, counts in rows]


def _counts(score: Score) -> list[int]:
    """In the order of COLUMNS."""
    caught, untested, missed = map(score.count, TrialOutcome)
    planted = len(score.trials)
    assert planted == caught + untested + missed
    return [planted, caught, score.located, score.understood, untested, missed, score.clean, len(score.alarms)]


def _print(scores: list[Score], quiet: bool) -> None:
    """Print the table, and before it every trial that was not caught, located and explained."""
    out = console()
    if not quiet:
        for score in scores:
            for trial in score.trials:
                if not trial.understood:
                    out.print(_sentence(trial))
            for alarm in score.alarms:
                out.print(f"[red]FALSE ALARM[/] {score.model}: {alarm}")
        out.print()
    shown = borderless()
    for index, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if index else "left")
    for row in table(scores):
        shown.add_row(*row)
    out.print(shown)


def _sentence(trial: Trial) -> str:
    """A trial in rich's markup: what was planted where, and what was found."""
    style = {TrialOutcome.MISSED: "red", TrialOutcome.UNTESTED: "dim", TrialOutcome.CAUGHT: "yellow"}[trial.outcome]
    found = f"found {trial.found}: {trial.explanation or 'not explained'}" if trial.found else "no layer differs"
    where = f"{trial.model}: {trial.kind} in {trial.layer}, {trial.visible:.3g} × its noise floor"
    return f"[{style}]{trial.outcome:8}[/] {where}; {found}"
