"""Standard output and standard error of a command: nothing that happens to them changes how the command ends.

A character that the terminal cannot show is written in ASCII. What is written after the reader has gone is dropped, and so is what
is written to a stream that was closed before the start. When standard output cannot be written for another reason, such as a full
disk, the command goes on, and ``close`` returns the reason afterwards.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from typing import Any, TextIO

READABLE = "xverify.readable"  # the name of the error handler below
# Symbols of reports -> how they are written where the encoding lacks them. All others become escapes such as \u2211.
IN_ASCII = {
    **{"Δ": "d", "÷": "/", "×": "x", "ρ": "rho", "σ": "sigma", "∞": "inf", "≤": "<=", "≥": ">=", "±": "+-", "−": "-"},
    **{"–": "-", "—": "-", "…": "...", "→": "->", "✓": "yes", "✗": "no", "·": ".", "•": "*", "≈": "~", "┊": ":"},
    **dict.fromkeys("─━╴╶╸╺┄┈", "-"),
    **dict.fromkeys("│┃╷╵", "|"),
    **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╯╰┏┓┗┛┡┩╇", "+"),
}


def _readable(error: UnicodeError) -> tuple[str, int]:
    """The ASCII form of characters that an encoding lacks: an error handler of ``codecs``."""
    assert isinstance(error, UnicodeEncodeError)
    letters = error.object[error.start : error.end]
    shown = (
        _braille(each) or IN_ASCII.get(each) or each.encode("ascii", "backslashreplace").decode() for each in letters
    )
    return "".join(shown), error.end


def _braille(letter: str) -> str:
    """What stands for the dots of a drawn curve: a point, or a space where there is no dot; "" for any other character."""
    if not "\u2800" <= letter <= "\u28ff":
        return ""
    return " " if letter == "\u2800" else "."


codecs.register_error(READABLE, _readable)


class _Descriptor(io.FileIO):
    """A file descriptor that takes everything. problem: why something could not be written, unless its reader had gone."""

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.problem = ""

    def write(self, data: Any) -> int:  # Any: an object with the buffer protocol
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EBADF, errno.EIO):  # EIO: the terminal has been closed
                self.problem = error.strerror or str(error)
            return memoryview(data).nbytes


def protect() -> None:
    """Let the standard streams of this process take everything. A descriptor that is closed leads to the null device.

    Without that, the next file that is opened would get the number of the closed one, and the output would go into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
    sys.stdout, sys.stderr = _protected(sys.stdout, 1), _protected(sys.stderr, 2)


def _protected(stream: TextIO | None, number: int) -> TextIO:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    if stream is not None:
        stream.flush()
    raw = _Descriptor(number)
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding, READABLE, line_buffering=number == 2 or raw.isatty(), write_through=False
    )


def close() -> str:
    """Write what is left. Returns why standard output could not be written, or ""."""
    problems = []
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
        raw = getattr(getattr(stream, "buffer", None), "raw", None)
        problems.append(raw.problem if isinstance(raw, _Descriptor) else "")
    return problems[0]
