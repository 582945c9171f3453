"""Checks the promise of the detection limits, on graphs of every kind and on models.

python suites/floors.py [--only LIST] [--every N] [--seeds N] [--graphs | --models] [--markdown]

The promise: every fault whose relative error is above twice the detection limit that the report states is caught, and at least
19 of 20 right runs pass, with other seeds, batches and threads. A fault is caught when the verdict is worse than EQUAL; UNTESTED
is no pass. The exit code is 1 when the promise is broken.

Of an error in one class, one item or one value, that is the limit that is stated for it; these are planted in batches of 4.

Graphs (floor_graphs.py) are checked against the same graph without a fault. A right one is the same file, or one that adds its
terms in another order. Models are those of the zoo and of tests/ports (floor_models.py), run in TensorFlow beside torch.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path

import floor_files
import floor_models
import pool
from floor_graphs import GRAPHS
from floor_parts import Draw

from xverify.results.figures import shown_limit
from xverify.results.verdicts import Verdict

ONE_OF = 20  # right runs, one may fail
# The stated limit is that of the median group of values, and a fault is in one column, whose noise may be larger.
SLACK = 2.0
PASSES = (Verdict.IDENTICAL.value, Verdict.EQUAL.value)


@dataclass(frozen=True)
class Item:
    """One run. name: of a graph or a model. fault: None for a right run. seed: of weights, inputs, batch and threads."""

    name: str
    fault: floor_files.Fault | floor_models.Scaled | None
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.name}, {f'seed {self.seed}' if self.fault is None else self.fault}"


@dataclass
class Line:
    """What was found about one graph or model: one line of the table.

    caught: relative errors of the faults that were caught. limits: stated detection limits. missed: faults above them that passed.
    no_answer: runs that ended without a verdict.
    """

    right: int = 0
    passed: int = 0
    faults: int = 0
    caught: list[float] = field(default_factory=list)
    limits: list[float] = field(default_factory=list)
    untested: int = 0
    missed: int = 0
    no_answer: int = 0

    def broken(self, least: int = 0) -> bool:
        """Whether the promise is broken: by a missed fault, no answer, or too many right runs that do not pass.

        least: so many right runs may fail, however few there are.
        """
        return bool(self.missed or self.no_answer or self.right - self.passed > max(least, self.right // ONE_OF))

    def cells(self) -> list[str]:
        limit = shown_limit(max(self.limits)) if self.limits else "-"
        caught = f"{min(self.caught):.0e}" if self.caught else "-"
        counts = f"{self.passed} of {self.right}", str(self.faults), str(len(self.caught)), str(self.untested)
        return [*counts, caught, limit, str(self.missed)]


COLUMNS = ("right runs passed", "faults", "caught", "UNTESTED", "smallest caught", "stated limit", "MISSED")


def total(lines: dict[str, Line]) -> Line:
    """The sums of all lines."""
    found = Line()
    for line in lines.values():
        for each in fields(Line):
            setattr(found, each.name, getattr(found, each.name) + getattr(line, each.name))
    return found


def table(lines: dict[str, Line], markdown: bool) -> str:
    """All lines, with the sums below. markdown: as Markdown."""
    rows = [["", *COLUMNS], *([name, *line.cells()] for name, line in lines.items()), ["all", *total(lines).cells()]]
    if markdown:
        rows.insert(1, ["---", *["---:"] * len(COLUMNS)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths)).rstrip() for row in rows)


def right(line: Line, item: Item, folder: Path) -> str:
    """Make one right run. Returns what is wrong with the answer; "" when nothing is."""
    run = floor_files.right_run if item.name in GRAPHS else floor_models.right_run
    passed, answer, conditions = run(item.name, item.seed, folder)
    line.right += 1
    line.passed += passed
    line.limits += [answer.limit] if answer.limit is not None else []
    if passed:
        return ""
    said = "; ".join(f"{task} {verdict} {answer.reasons[task]}" for task, verdict in answer.verdicts.items())
    return f"a right run does not pass ({conditions}): {said}"


def faulty(line: Line, item: Item, folder: Path) -> str:
    """Plant one fault. Returns what is wrong with the answer; "" when nothing is."""
    if isinstance(item.fault, floor_files.Fault):
        answer, pairs = floor_files.faulty_run(item.name, item.fault, item.seed, folder)
    else:
        assert item.fault is not None
        answer, pairs = floor_models.faulty_run(item.name, item.fault, item.seed, folder)
    return judge(line, answer, pairs)


def judge(line: Line, answer: floor_files.Answer, pairs: Sequence[tuple[float, float]]) -> str:
    """Count one fault. pairs: (its relative error, the stated detection limit) of every output, or of the layer that it is in."""
    verdict = answer.verdicts.get("conversion", "no row")
    error = max((error for error, _ in pairs), default=0.0)
    if verdict == floor_models.NO_LAYER:
        return ""
    line.faults += 1
    if verdict == Verdict.UNTESTED.value:
        line.untested += 1
    elif verdict in PASSES:
        above = [(error, limit) for error, limit in pairs if error > SLACK * limit]
        if above:
            line.missed += 1
            worst, limit = max(above, key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf)
            return f"a fault of {worst:.2g} is {verdict}, and the detection limit that was stated is {limit:.2g}"
    elif verdict in (Verdict.DRIFT.value, Verdict.DIFFERENT.value, Verdict.INVALID.value):
        line.caught.append(error)
    else:
        line.no_answer += 1
        return f"no verdict on a fault: {verdict} {answer.reasons.get('conversion', '')}"
    return ""


def items(names: Sequence[str], seeds: int) -> Iterator[Item]:
    """Everything to do for these graphs and models."""
    for name in names:
        graph = name in GRAPHS
        count = seeds if graph else -(-seeds // floor_models.SHARE)
        yield from (Item(name, None, seed) for seed in range(count))
        found = floor_files.faults(GRAPHS[name](Draw(0))) if graph else floor_models.faults(name)
        yield from (Item(name, fault) for fault in found)


def run(chosen: Sequence[Item]) -> tuple[dict[str, Line], int]:
    """Make all runs. Returns the lines of the table, and the number of wrong answers."""
    lines: dict[str, Line] = {}
    begun, wrong = time.monotonic(), 0
    with tempfile.TemporaryDirectory(prefix="floors-") as space, pool.lend():
        for number, item in enumerate(chosen):
            if item.name not in lines:
                left = (time.monotonic() - begun) / max(1, number) * (len(chosen) - number)
                about = f", about {left / 60:.0f} minutes left" if number else ""
                print(f"{item.name} (run {number + 1} of {len(chosen)}{about})", flush=True)
            line = lines.setdefault(item.name, Line())
            try:
                said = (right if item.fault is None else faulty)(line, item, Path(space))
            except Exception as error:  # a crash is a wrong answer, and the other runs still count
                line.no_answer += 1
                said = f"no answer: {type(error).__name__}: {error}"
            if said:
                wrong += 1
                print(f"  WRONG {item}: {said}", flush=True)
    return lines, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names of graphs and models (default: all)")
    parser.add_argument("--every", type=int, default=1, help="every N-th run alone (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=20, help="right runs of each graph; a model has a fifth (default: %(default)s)"
    )
    parser.add_argument("--graphs", action="store_true", help="the graphs alone")
    parser.add_argument("--models", action="store_true", help="the models alone")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    asked = parser.parse_args()
    known = [*([] if asked.models else GRAPHS), *([] if asked.graphs else floor_models.names())]
    names = asked.only.split(",") if asked.only else known
    if unknown := sorted(set(names) - set(known)):
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
    chosen = list(items(names, asked.seeds))[:: asked.every]
    begun = time.monotonic()
    lines, wrong = run(chosen)
    print(f"\n{table(lines, asked.markdown)}\n")
    failed = not lines or total(lines).broken() or any(line.broken(least=1) for line in lines.values())
    runs = f"{len(chosen)} runs of {len(lines)} graphs and models, {wrong} wrong answers"
    print(f"{'FAIL' if failed else 'PASS'}: {runs}; {time.monotonic() - begun:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
