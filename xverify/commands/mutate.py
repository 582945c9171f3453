from __future__ import annotations

import argparse
from contextlib import suppress

from ..errors import NotWritten, shown
from ..mutation.forward import mutate
from ..mutation.records import Score, Trial, TrialOutcome
from ..mutation.training import mutate_training
from ..mutation.workers import TORCH
from ..report.progress import progress_listener
from ..report.tables import borderless, markdown
from ..report.terminal import console
from ..report.text import escape
from ..results.file import write_json
from ..workload.declaration import Option
from ..workload.options import HOW, OUTPUT, WHAT, named
from ..writing import is_replaced
from . import _outputs as outputs
from ._arguments import Parser, add

HELP = "plant known porting faults in a model, and count those that are caught"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify mutate resnet18 vit-tiny lstm-cell
  xverify mutate mlp --per-kind 3 --seed 1 --json score.json
  xverify mutate mlp --subjects flax,paddle
  xverify mutate mlp resnet18 --task train"""

EXIT_CODES = {
    0: "every visible fault was caught, without a false alarm",
    1: "a visible fault was missed, or a clean run raised an alarm",
    2: "a wrong command line",
    3: "a model could not run",
}
OPTIONS = (
    named("batch", annotation=int, default=2, unset="", help="items a call", parse=None),
    named("subjects", default=(TORCH,), unset=TORCH, help="frameworks of the ports, each scored by itself"),
    named("task", metavar="TASK", many=False, help="forward: faults of layers; train: faults of training code"),
    Option("per_kind", int, 1, "layers drawn for each kind of fault", group=HOW, metavar="N", least=1),
    named("seed", help="seed of drawn weights, inputs and layers"),
    named("threads", help="threads of the port"),
    named("json", help="write every trial to a file"),
    named("force"),
    Option("markdown", bool, False, "print the table as Markdown", group=OUTPUT),
    named("quiet", help="print only the table"),
)
COLUMNS = (
    *("model", "planted", "caught", "exit 1", "DRIFT, named", "layer named", "explained"),
    *("UNTESTED", "missed", "clean runs", "false alarms"),
)


def add_arguments(parser: Parser) -> None:
    parser.group(WHAT).add_argument(
        "models", nargs="+", metavar="MODEL|FOLDER", help="models of the zoo, or folders with a torch.py"
    )
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Print the score of every model, and return a code of EXIT_CODES."""
    from ..framework import reads

    outputs.check(args, OPTIONS, reads.of_run(args.models, (), {}), force=args.force)
    scores: list[Score] = []
    for model in args.models:
        for subject in args.subjects or (TORCH,):
            scores.append(_score(args, model, subject))
            if args.json and is_replaced(args.json):
                with suppress(NotWritten):  # the last write tells
                    write_json([score.to_dict() for score in scores], args.json)
    if args.markdown:
        print("\n".join(markdown(COLUMNS, table(scores))))
    else:
        _print(scores, args.quiet)
    if args.json:
        write_json([score.to_dict() for score in scores], args.json)
    return int(any(score.count(TrialOutcome.MISSED) or score.alarms for score in scores))


def _score(args: argparse.Namespace, model: str, subject: str) -> Score:
    with progress_listener(args.quiet) as listener:
        if args.task == "train":
            return mutate_training(
                model, subject=subject, batch=args.batch, seed=args.seed, threads=args.threads, listener=listener
            )
        return mutate(
            model,
            subject=subject,
            batch=args.batch,
            seed=args.seed,
            per_kind=args.per_kind,
            threads=args.threads,
            listener=listener,
        )


def table(scores: list[Score]) -> list[list[str]]:
    """The rows of the table: one for each model and port, and their sum when there are several."""
    rows = [(_name(score), _counts(score)) for score in scores]
    if len(rows) > 1:
        rows.append(("all", [sum(column) for column in zip(*(counts for _, counts in rows))]))
    return [[shown(name), *map(str, counts)] for name, counts in rows]


def _name(score: Score) -> str:
    """The model and, where it is not torch, the framework of the port."""
    return score.model if score.subject == TORCH else f"{score.model}, {score.subject}"


def _counts(score: Score) -> list[int]:
    """The numbers of a row, in the order of COLUMNS."""
    caught, untested, missed = map(score.count, TrialOutcome)
    planted = len(score.trials)
    assert planted == caught + untested + missed
    assert caught == score.fails + score.drifts
    named = [score.located, score.understood]
    return [planted, caught, score.fails, score.drifts, *named, untested, missed, score.clean, len(score.alarms)]


def _print(scores: list[Score], quiet: bool) -> None:
    """Print every trial that was not caught, located and explained, and then the table."""
    out = console()
    if not quiet:
        for score in scores:
            for trial in score.trials:
                if not trial.understood:
                    out.print(_sentence(trial, _name(score)))
            for reason in score.unplanted:
                out.print(f"[dim]not planted[/] {escape(_name(score))}: {escape(reason)}")
            for alarm in score.alarms:
                out.print(f"[red]FALSE ALARM[/] {escape(_name(score))}: {escape(str(alarm))}")
        out.print()
    shown = borderless()
    for index, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if index else "left")
    for row in table(scores):
        shown.add_row(*map(escape, row))
    out.print(shown)


def _sentence(trial: Trial, name: str) -> str:
    """A trial in rich's markup: what was planted where, and what was found. name: of the model and the port."""
    style = {TrialOutcome.MISSED: "red", TrialOutcome.UNTESTED: "dim", TrialOutcome.CAUGHT: "yellow"}[trial.outcome]
    found = f"found {trial.found}: {trial.explanation or 'not explained'}" if trial.found else "no layer differs"
    where = f"{name}: {trial.kind} in {trial.layer}, {trial.visible:.3g} × its noise floor"
    return f"[{style}]{trial.outcome:8}[/] {escape(where)}; {escape(found)}"
