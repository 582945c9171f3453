"""Runs one cell in a process of its own, beside which nothing else is timed on this machine.

The process reads the cell from its standard input, and ends together with the process that started it, however that ends.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from ..errors import XverifyError
from ..interpreter import module
from .cell import run_cell
from .planning import Planned

MACHINE_LOCK = "xverify-machine.lock"  # in the folder for temporary files, which all processes of a machine share
LENGTH = struct.Struct("!Q")


def run_alone(planned: Planned, path: Path) -> None:
    """Run a cell in a new process, which writes its result to ``path``. Raises XverifyError when it writes none."""
    content = pickle.dumps((planned, str(path)))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            module(sys.executable, __name__), stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
        assert process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):  # the log says why it ended
                process.stdin.write(LENGTH.pack(len(content)) + content)
                process.stdin.flush()
            code = process.wait()  # its end of the pipe stays open for as long as this process lives
        finally:
            with contextlib.suppress(OSError):
                process.stdin.close()
            if process.poll() is None:
                process.terminate()
                process.wait()
        if code != 0:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
            raise XverifyError(f"its process ended with {code}: {lines[-1][:600] if lines else 'it said nothing'}")


def main() -> int:
    """Run the cell that standard input names. Returns the exit code of the process: 0 when there is a result."""
    pipe = sys.stdin.buffer
    [length] = LENGTH.unpack(pipe.read(LENGTH.size))
    planned, path = pickle.loads(pipe.read(length))
    threading.Thread(target=_end_with_parent, args=(pipe.fileno(),), daemon=True).start()
    try:
        with machine_to_itself(planned.settings.no_timing):
            run_cell(planned, Path(path))
    except XverifyError as error:
        print(error, file=sys.stderr)
        return 3
    return 0


def _end_with_parent(pipe: int) -> None:
    """Interrupt this process when its parent has ended, so that it deletes its temporary files."""
    os.read(pipe, 1)  # not by the stream, whose lock a thread must not hold when the interpreter ends
    os.kill(os.getpid(), signal.SIGTERM)


@contextlib.contextmanager
def machine_to_itself(untimed: bool) -> Iterator[None]:
    """Wait until no other cell is timed on this machine, also by another worker. untimed: nothing will be timed."""
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        yield
        return
    path = Path(tempfile.gettempdir(), MACHINE_LOCK)
    reading = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # also where there is a pipe in its place
    try:
        file = os.open(path, reading)  # one that another user has made can be locked, too
    except FileNotFoundError:
        file = os.open(path, reading | os.O_CREAT, 0o644)
    try:
        fcntl.flock(file, fcntl.LOCK_SH if untimed else fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
