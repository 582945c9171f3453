from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from ..errors import UsageError, nearest
from ..mutation.forward import Score, mutate
from ..mutation.training import mutate_training
from ..reference.request import TASKS
from ..report.progress import progress_listener
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
    """Exit 0 when every visible fault was caught and no clean run was alarmed at; else 1."""
    if args.per_kind < 1:
        raise UsageError(f"--per-kind is {args.per_kind}: it must be at least 1")
    if args.json and not Path(args.json).absolute().parent.is_dir():
        raise UsageError(f"--json {args.json}: the folder {Path(args.json).absolute().parent} does not exist")
    if args.task not in TASKS:
        raise UsageError(f"--task is {args.task!r}{nearest(args.task, TASKS)} Known: {', '.join(TASKS)}")
    scores = []
    for model in args.models:
        settings = {"batch": args.batch, "seed": args.seed, "threads": args.threads}
        with progress_listener(args.quiet) as listener:
            if args.task == "train":
                scores.append(mutate_training(model, listener=listener, **settings))
            else:
                scores.append(mutate(model, per_kind=args.per_kind, listener=listener, **settings))
        if args.json:
            Path(args.json).write_text(json.dumps(_plain([score.to_dict() for score in scores]), indent=1) + "\n")
    if args.markdown:
        print("\n".join(markdown(scores)))
    else:
        _print(scores, args.quiet)
    return int(any(score.count("MISSED") or score.alarms for score in scores))


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value).replace("Infinity", "null"))


def table(scores: list[Score]) -> list[list[str]]:
    """The rows: one a model, and their sum."""
    rows = []
    for score in scores:
        visible = len(score.trials) - score.count("UNTESTED")
        counts = (score.count("CAUGHT"), score.named, score.understood)
        rows.append(
            [
                score.model,
                len(score.trials),
                *counts,
                score.count("UNTESTED"),
                score.count("MISSED"),
                score.clean,
                len(score.alarms),
            ]
        )
        assert visible == score.count("CAUGHT") + score.count("MISSED")
    if len(rows) > 1:
        rows.append(["all", *(sum(column) for column in list(zip(*rows))[1:])])
    return [[str(value) for value in row] for row in rows]


def markdown(scores: list[Score]) -> list[str]:
    head = ["| " + " | ".join(COLUMNS) + " |", "|---" + "|---:" * (len(COLUMNS) - 1) + "|"]
    return head + ["| " + " | ".join(row) + " |" for row in table(scores)]


def _print(scores: list[Score], quiet: bool) -> None:
    out = console()
    shown = Table(box=None, pad_edge=False)
    for index, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if index else "left")
    for row in table(scores):
        shown.add_row(*row)
    if not quiet:
        for score in scores:
            for trial in score.trials:
                if trial.outcome == "CAUGHT" and trial.understood:
                    continue
                said = (
                    f"found {trial.found}: {trial.explanation or 'not explained'}"
                    if trial.found
                    else "no layer differs"
                )
                colour = {"MISSED": "red", "UNTESTED": "dim"}.get(trial.outcome, "yellow")
                where = f"{score.model}: {trial.kind} in {trial.layer} ({trial.visible:.3g} floors)"
                out.print(f"[{colour}]{trial.outcome:8}[/] {where}; {said}")
            for alarm in score.alarms:
                out.print(f"[red]FALSE ALARM[/] {score.model}: {alarm}")
        out.print()
    out.print(shown)
