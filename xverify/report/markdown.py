"""Results as Markdown in GitHub's dialect."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from ..results.records import Result
from . import content, decoding, plan, training
from .tables import Column, markdown
from .text import LONGEST, one_line, pieces

T = TypeVar("T")
ACTIVE = re.compile(r"[\\`*_\[\]<>~$&]")  # characters that Markdown reads as marks; those of a table are escaped there
# What GitHub makes links of without any mark: addresses, mentions, and numbers of issues. A comment after it ends that.
LINKED = re.compile(r"@|:(?=//)|\bwww(?=\.)|(?:#|\bGH-)(?=\d)", re.IGNORECASE)
LONGEST_NAME = 120  # characters of a name in a heading or a cell


def literal(text: str, longest: int = LONGEST) -> str:
    """A text of a result in one line that Markdown shows as it is. It mentions nobody, and nothing in it becomes a link."""
    return LINKED.sub(r"\g<0><!-- -->", ACTIVE.sub(lambda found: "\\" + found[0], one_line(text, longest)))


def cell(markup: str) -> str:
    """A cell in rich's markup as Markdown: what does not count is struck out."""
    return " ".join(f"~~{literal(each.text)}~~" if each.struck else literal(each.text) for each in pieces(markup))


def table(columns: Sequence[Column[T]], rows: Iterable[T]) -> list[str]:
    """The lines of a table."""
    titles = [literal(column.title) for column in columns]
    lines = markdown(titles, ([cell(column.cell(row)) for column in columns] for row in rows))
    lines[1] = "|" + "|".join("---" if column.left else "---:" for column in columns) + "|"
    return lines


def report(results: Sequence[Result]) -> str:
    """The report of one or several results."""
    blocks = list(_overview(results)) if len(results) != 1 else []
    for result in results:
        blocks += _of_result(result)
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _overview(results: Sequence[Result]) -> Iterator[list[str]]:
    """A table of several results."""
    yield [f"# {content.conclusion(*results)}: {len(results)} results"]
    head = ("model", "tasks", "verdict", "rows")
    found = (
        [
            literal(each.model, LONGEST_NAME),
            literal(", ".join(each.tasks)),
            content.conclusion(each),
            literal(content.tally(each)),
        ]
        for each in results
    )
    yield markdown(head, found, "---")


def _of_result(result: Result) -> Iterator[list[str]]:
    """The blocks of one result."""
    tasks = literal(", ".join(result.tasks), LONGEST_NAME)
    yield [f"## {content.conclusion(result)}: {literal(result.model, LONGEST_NAME)}, {tasks}"]
    yield [f"{literal(content.tally(result))}."]
    if result.rows:
        yield table(content.columns(result), result.rows)
    else:
        yield ["There are no rows: nothing was compared."]
    yield from _training(result)
    yield from _decoding(result)
    yield from _plan(result)
    said = [f"* **{literal(each.subject, LONGEST_NAME)}**: {literal(each.text)}" for each in content.reasons(result)]
    if said:
        yield said
    lines = [f"* {literal(line)}" for line in content.footer(result)]
    yield ["<details><summary>What was checked, against what, and what it means</summary>"]
    yield lines or ["Nothing was checked."]
    yield ["</details>"]


def _plan(result: Result) -> Iterator[list[str]]:
    """The tables of a plan of precisions, and the sentences on it."""
    if result.plan is not None:
        yield [f"### {literal(plan.title(result.plan))}"]
        yield table(plan.files(result), result.plan.files)
        if shown := plan.shown_layers(result.plan):
            yield table(plan.layers(result.plan), shown)
        yield [f"* {literal(line)}" for line in plan.lines(result.plan)]


def _decoding(result: Result) -> Iterator[list[str]]:
    """The ways to compute the sequences of each row, and the sentences on them."""
    for subject, found in decoding.decoded(result.rows):
        yield [f"### {literal(decoding.title(subject, found))}"]
        yield table(decoding.COLUMNS, found.ways)
        if said := [f"* {literal(says)}" for says in decoding.sentences(found)]:
            yield said


def _training(result: Result) -> Iterator[list[str]]:
    """The table of the training-parity checks, and the sentences on them."""
    names, cells = training.checks_of(result.rows)
    if names:
        found = (
            [literal(subject, LONGEST_NAME), *(literal(of[name].plain) if name in of else "-" for name in names)]
            for subject, of in cells.items()
        )
        yield markdown(["training-parity checks", *map(literal, names)], found, "---")
    said = [f"* {literal(text.plain)}" for text in training.sentences(result.rows)]
    if said:
        yield said
