"""The command line as tests call it: within their own process, or as a process of its own, which takes half a second more."""

import io
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from xverify.commands._main import main

OF_THREAD = threading.local()  # log: where a thread that works as a worker writes


class _Stream(io.TextIOWrapper):
    """A standard stream of a command. What a thread writes that works as a worker goes to the log of this worker."""

    def write(self, text: str) -> int:
        log = getattr(OF_THREAD, "log", None)
        return super().write(text) if log is None else log.write(text)


@dataclass
class Ended:
    """How a command ended: its exit code, and what it wrote."""

    code: int
    out: str
    err: str


def called(command: Sequence[str], here: Path, variables: Mapping[str, str]) -> Ended:
    """Call the command within this process, in the directory ``here`` and with these environment variables."""
    out, err = (_Stream(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    with _place(here, variables), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(list(command))
        except SystemExit as ended:  # the help, or a wrong argument
            code = int(ended.code or 0)
    return Ended(code, *(each.buffer.getvalue().decode() for each in (out, err)))


def started(command: Sequence[str], here: Path, variables: Mapping[str, str], timeout: float) -> Ended:
    """Start the command as a process of its own, for tests of streams, of imports, and of how a process ends."""
    done = subprocess.run(
        [sys.executable, "-m", "xverify", *command],
        capture_output=True,
        text=True,
        cwd=here,
        timeout=timeout,
        env={**os.environ, **variables},
        check=False,
    )
    return Ended(done.returncode, done.stdout, done.stderr)


def forked(
    call: Callable[[], int], here: Path, variables: Mapping[str, str], path: Sequence[str] = ()
) -> tuple[int, str]:
    """Call a function in a fork of this process. Returns its exit code, and what was written to both streams.

    here: the directory of the fork. variables: all of its environment variables. path: where it looks for modules first.
    """
    with tempfile.TemporaryFile() as written:
        code = forked_to(written.fileno(), call, here, variables, path)
        written.seek(0)
        return code, written.read().decode()


def forked_to(
    written: int, call: Callable[[], int], here: Path, variables: Mapping[str, str], path: Sequence[str] = ()
) -> int:
    """The same with both streams of the fork at a file descriptor. Returns its exit code."""
    child = os.fork()
    if not child:
        _end(call, here, variables, path, written)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end(call: Callable[[], int], here: Path, variables: Mapping[str, str], path: Sequence[str], written: int) -> None:
    """Call a function and end this process with the code that it returns."""
    code = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.chdir(here)
        os.environ.clear()
        os.environ.update(variables)
        sys.path[:0] = path
        os.dup2(written, 1)
        os.dup2(written, 2)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", closefd=False) for number in (1, 2))
        code = call()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def hear_interrupts() -> None:
    """In a new process: jobs that a shell starts in the background ignore SIGINT, and so would all that they start.

    Those that nohup starts ignore SIGHUP.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@contextmanager
def _place(here: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Another directory and other variables. What a command changes in its process is undone."""
    before, environment, path, modules = Path.cwd(), dict(os.environ), list(sys.path), dict(sys.modules)
    temporary, tempfile.tempdir = tempfile.tempdir, None  # TMPDIR is read again
    signals = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    os.chdir(here)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = temporary
        for number, handler in signals.items():
            signal.signal(number, handler)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = path
        sys.modules.update(modules)  # an adapter of a test may have taken the place of one of xverify's
