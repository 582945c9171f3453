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

MACHINE_LOCK = "xverify-{user}.lock"  # in the folder for temporary files, which all processes of a machine share
RUNNING: set[subprocess.Popen[bytes]] = set()  # the processes of cells that this process has started
LENGTH = struct.Struct("!Q")


def run_alone(planned: Planned, path: Path) -> None:
    """Run a cell in a new process, which writes its result to ``path``. Raises XverifyError when it writes none."""
    content = pickle.dumps((planned, str(path)))
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            module(sys.executable, __name__), stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT
        )
        assert process.stdin is not None
        RUNNING.add(process)
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
            RUNNING.discard(process)
        if code != 0:
            log.seek(0)
            lines = log.read().decode("utf-8", "replace").strip().splitlines()
            raise XverifyError(f"its process ended with {code}: {lines[-1][:600] if lines else 'it said nothing'}")


def end_all() -> None:
    """End the processes of all cells, and wait until they have removed their temporary files."""
    for process in tuple(RUNNING):
        process.terminate()
        process.wait()


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
    """Wait until no other cell of this user is timed on this machine, also by another worker. untimed: nothing will be timed.

    Raises XverifyError when another user has taken the place of the lock.
    """
    try:
        import fcntl
    except ImportError:  # this system has no such locks
        yield
        return
    # Another user can neither open nor replace it, and so cannot keep this one waiting.
    path = Path(tempfile.gettempdir(), MACHINE_LOCK.format(user=os.getuid()))
    try:
        file = os.open(
            path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600
        )  # also where there is a pipe
        mine = os.fstat(file).st_uid == os.getuid()
    except OSError:
        mine = False
    if not mine:
        raise XverifyError(
            f"{path} is of another user, or no file: remove it, or name another temporary directory with TMPDIR"
        )
    try:
        fcntl.flock(file, fcntl.LOCK_SH if untimed else fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


if __name__ == "__main__":
    sys.exit(main())
