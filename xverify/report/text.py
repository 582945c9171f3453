"""Text of a result for other formats than the terminal. Names can hold any characters, and any number of them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from rich import markup  # noqa: TID251  this is the one place
from rich.text import Text

from ..errors import shown
from ..results.verdicts import Outcome

LONGEST = 2000  # characters of a sentence in a report; the result file holds all of them
LONGEST_CELL = 160  # characters in a cell of a table
VERDICT = re.compile(rf"\s*(?:{'|'.join(Outcome)})\b")  # the beginning of the last line of a command


@dataclass(frozen=True)
class Piece:
    """A part of a cell. struck: whether it is struck out, because it does not count."""

    text: str
    struck: bool = False


def escape(text: str) -> str:
    """A text from elsewhere in rich's markup, as ``quoted`` shows it: the only way of such a text to the terminal."""
    return markup.escape(quoted(text))


def within(text: str) -> str:
    """The same for a text that begins no line, such as a later cell of a row: as ``shown`` shows it."""
    return markup.escape(shown(text))


def quoted(text: str) -> str:
    """A text from elsewhere that may begin a line: as ``shown`` shows it, and in quotes where it would read as a verdict."""
    line = shown(text)
    return f"'{line}'" if VERDICT.match(line) else line


def one_line(text: str, longest: int = LONGEST) -> str:
    """A text in one line, as ``shown`` shows it, without repeated blanks, and cut when it is too long."""
    line = shown(" ".join(text[: 2 * longest].split()))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def pieces(markup: str) -> tuple[Piece, ...]:
    """The parts of a cell in rich's markup, to be shown with a space between them. Colours are left out: a verdict is a word."""
    text = Text.from_markup(markup, emoji=False)
    struck = [span for span in text.spans if "strike" in str(span.style)]
    edges = sorted({0, len(text), *(edge for span in struck for edge in (span.start, span.end))})
    return tuple(
        Piece(part, any(span.start <= start < span.end for span in struck))
        for start, end in pairwise(edges)
        if (part := one_line(text.plain[start:end], LONGEST_CELL))
    )
