"""The text that a worker, its framework and its compilers wrote to the standard streams."""

from __future__ import annotations

import os
import re
from pathlib import Path

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
MOST = 2000  # bytes at the end of the file in which the last line is looked for
LARGEST = 2**26  # bytes of a file; a larger one is cut
KEPT = 2**20  # bytes at the end of a file that is cut, which it keeps


class Log:
    """The file of a worker's standard output and standard error.

    ``last_line`` is asked for again and again while a worker works. It reads only what was written since it was last asked for.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read = 0  # size of the file when it was last read
        self._end = b""  # the last MOST bytes at that time

    def text(self) -> str:
        """The whole text without colour codes; "" when there is no file."""
        try:
            return _plain(self.path.read_bytes())
        except OSError:
            return ""

    def last_line(self) -> str:
        """The last line that is not blank; "" when there is none."""
        lines = [line.strip() for line in re.split(r"[\r\n]", _plain(self._newest())) if line.strip()]
        return lines[-1] if lines else ""

    def last_words(self) -> str:
        """The end of a sentence about a process that failed: "; its last line: ..."; "" when there is no line."""
        line = self.last_line()
        return f"; its last line: {line[:200]}" if line else ""

    def bound(self) -> None:
        """Cut a file that is larger than LARGEST: only its end is kept. The worker appends to the file, and goes on behind that."""
        try:
            size = self.path.stat().st_size
            if size <= LARGEST:
                return
            with self.path.open("rb") as file:
                file.seek(size - KEPT)
                end = file.read(KEPT)
            os.truncate(self.path, 0)
            with self.path.open("ab") as file:
                file.write(b"[%d bytes were left out here]\n" % (size - len(end)) + end)
        except OSError:
            return

    def _newest(self) -> bytes:
        """The last MOST bytes of the file."""
        try:
            size = self.path.stat().st_size
            if size < self._read:  # a new process writes the file from its beginning
                self._read, self._end = 0, b""
            if size > self._read:
                with self.path.open("rb") as file:
                    file.seek(max(self._read, size - MOST))
                    new = file.read(MOST)
                    self._read, self._end = file.tell(), (self._end + new)[-MOST:]
        except OSError:
            return b""
        return self._end


def _plain(text: bytes) -> str:
    return _ANSI.sub("", text.decode(errors="replace"))
