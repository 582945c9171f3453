"""The text that a worker, its framework and its compilers wrote to the standard streams."""

from __future__ import annotations

import re
from pathlib import Path

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Log:
    """The file of a worker's standard output and standard error."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def text(self) -> str:
        """The whole text without colour codes; "" when there is no file."""
        try:
            return _ANSI.sub("", self.path.read_text(errors="replace"))
        except OSError:
            return ""

    def last_line(self) -> str:
        """The last line that is not blank; "" when there is none."""
        lines = [line.strip() for line in re.split(r"[\r\n]", self.text()[-2000:]) if line.strip()]
        return lines[-1] if lines else ""

    def last_words(self) -> str:
        """The end of a sentence about a process that failed: "; its last line: ..."; "" when there is no line."""
        line = self.last_line()
        return f"; its last line: {line[:200]}" if line else ""
