"""The lines that a worker writes, which a thread of this process reads."""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import IO

from .ending import Ending

MOST_NOISE = 1000  # lines that an interpreter may print before the worker's hello
LONGEST_LINE = 2**26  # bytes of a line that are read; a longer one is no message


class Lines(queue.Queue["bytes | None"]):
    """The lines of a worker in their order, and None for their end. It is there before the process, which may end at any time."""

    def __init__(self) -> None:
        super().__init__(2 * MOST_NOISE)
        self.reader: threading.Thread | None = None

    def follow(self, pipe: IO[bytes], ending: Ending) -> None:
        """Begin to read.

        pipe: the standard output of the worker. ending: its end, after which no line is waited for even when a process that it
            started keeps the pipe open.

        Raises RuntimeError when the system has no thread left.
        """
        reader = threading.Thread(target=self._read, args=(pipe,), daemon=True)
        reader.start()
        self.reader = reader
        threading.Thread(target=self._await_end, args=(ending,), daemon=True).start()

    def end(self) -> None:
        """Let the next one who asks for a line see the end."""
        with contextlib.suppress(queue.Full):
            self.put_nowait(None)

    def are_read(self) -> bool:
        """Wait a second until nothing is left to read. Returns whether that is so."""
        if self.reader is None:
            return True
        self.reader.join(1)
        return not self.reader.is_alive()

    def _read(self, pipe: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError):
            while line := pipe.readline(LONGEST_LINE):
                self.put(line)
        self.put(None)

    def _await_end(self, ending: Ending) -> None:
        ending.wait()
        self.are_read()  # what the worker sent before its end
        self.end()


def shown(line: bytes) -> str:
    """The begin of a line, for a message."""
    return repr(line.strip()[:80])
