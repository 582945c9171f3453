"""Breaks sentences into the lines of a terminal: between words, with their indent, and never within a command."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

FURTHER = 2  # characters by which the second line of a sentence is indented more than its first one
# What stays in one line: text in backticks, an xverify command with its arguments, and an option with its value.
UNBROKEN = re.compile(
    r"(?:`[^`\n]{1,200}`"
    r"|(?<![\w./-])(?:xverify [a-z]+|(?:uv )?pip install)"
    r"(?: --?[\w-]+(?: [\w.,/:=]+\b)?| [^\s;,()]*[./=\[][^\s;,()]*\w\]?| [A-Z][A-Z\d_|…-]+\b)+"
    r"|(?<![\w./-])xverify [a-z]+"
    r"|(?<![\w-])--[a-z][\w-]+ [\w.,/]+"
    r"|\S)+"
)


def wrapped(text: Text, width: int) -> Text:
    """The same text in lines of at most this many characters, where its words and commands allow it."""
    return Text("\n").join(part for line in text.split("\n", allow_blank=True) for part in _lines(line, width))


def _lines(line: Text, width: int) -> Iterator[Text]:
    """The lines of one line."""
    plain = line.plain.rstrip()
    if cell_len(plain) <= width:
        yield line
        return
    indent = len(plain) - len(plain.lstrip())
    begins, ends, hanging = 0, indent, 0
    for word in UNBROKEN.finditer(plain):
        if ends > indent and hanging + cell_len(plain[begins : word.end()]) > width:
            yield Text(" " * hanging) + line[begins:ends]
            begins, hanging = word.start(), indent + FURTHER
        ends = word.end()
        while " " not in word[0] and hanging + cell_len(plain[begins:ends]) > width > hanging:  # a long name
            cut = begins + width - hanging
            yield Text(" " * hanging) + line[begins:cut]
            begins, hanging = cut, indent + FURTHER
    yield Text(" " * hanging) + line[begins:ends]
