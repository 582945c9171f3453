from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.table import Table

from ..mutation.forward import Score, mutate
from ..mutation.training import mutate_training
from ..report.terminal import console, progress_listener
from ..workload.declaration import Option
from ..workload.options import HOW, OUTPUT, WHAT, named
from ._arguments import Parser, add, values

HELP = "plant known porting faults in a model, and count those that are caught"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify mutate resnet18 vit-tiny lstm-cell
  xverify mutate mlp --per-kind 3 --seed 1 --json score.json
  xverify mutate mlp resnet18 --task train"""

EXIT_CODES = {
    0: "every visible fault was caught, without a false alarm",
    1: "a visible fault was missed, or a clean run raised an alarm",
    2: "a wrong command line",
    3: "a model could not run",
}
OPTIONS = (
    named("batch", default=2, unset=""),
    named("task", metavar="TASK", many=False, help="forward: faults of layers; train: faults of training code"),
    Option("per_kind", int, 1, "layers drawn for each kind of fault", group=HOW, metavar="N", least=1),
    named("seed", help="seed of drawn weights, inputs and layers"),
    named("threads", help="threads of the port"),
    named("json", help="write every trial to a file"),
    Option("markdown", bool, False, "print the table as Markdown", group=OUTPUT),
    named("quiet", help="print only the table"),
)
COLUMNS = ("model", "planted", "caught", "layer named", "explained", "UNTESTED", "missed", "clean runs", "false alarms")


def add_arguments(parser: Parser) -> None:
    parser.group(WHAT).add_argument(
        "models", nargs="+", metavar="MODEL|FOLDER", help="models of the zoo, or folders with a torch.py"
    )
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Exit with 0 when every visible fault was caught, and no clean run raised an alarm; otherwise with 1."""
    values(args, OPTIONS)
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


def _plain(value: Any) -> Any:  # JSON
    return json.loads(json.dumps(value).replace("Infinity", "null"))


def table(scores: list[Score]) -> list[list[str]]:
    """One row for each model, and their sum."""
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
                where = f"{score.model}: {trial.kind} in {trial.layer} ({trial.visible:.3g} noise floors)"
                out.print(f"[{colour}]{trial.outcome:8}[/] {where}; {said}")
            for alarm in score.alarms:
                out.print(f"[red]FALSE ALARM[/] {score.model}: {alarm}")
        out.print()
    out.print(shown)
