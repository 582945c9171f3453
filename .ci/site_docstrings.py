"""Docstrings of this project for mkdocstrings: lines such as ``batch: items a call.`` become a list.

An argument or field has one such line, and further ones are indented. mkdocstrings would join them into one paragraph.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

ENTRY = re.compile(r"(\w+(?:, \w+)*): (.*)")


def listed(text: str) -> str:
    """A docstring as Markdown: one list entry for each argument."""
    lines: list[str] = []
    for line in text.replace("][", "]&#91;").splitlines():  # an option's form as FILE.py[:FUNCTION][@MODE] is no link
        entry = ENTRY.fullmatch(line)
        if entry and lines and lines[-1] and not lines[-1].startswith(("*", "    ")):
            lines.append("")  # Markdown wants a blank line before a list
        lines.append(f"* `{entry[1]}`: {entry[2]}" if entry else line)
    return "\n".join(lines)


class Arguments(griffe.Extension):
    """Changes every docstring before it is shown."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = listed(obj.docstring.value)
