"""The temporary folder of a run: it is deleted however the run ends, and one that a killed process left behind at the next start.

The owner of a folder holds a lock on a file in it for as long as it lives. A folder whose lock is free has no owner.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

from .. import host, interrupts
from ..errors import XverifyError
from .ending import kill_marked

PREFIX, LOCK = "xverify-", "owner.lock"
# Signals that end a program, and that Python does not turn into an exception by itself.
ENDING = ("SIGTERM", "SIGHUP")
PATIENCE = 1.0  # seconds after an interruption in which further signals are taken for the same one
REMOVAL_SECONDS = 3.0  # that the removal of a folder is tried again
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)


@contextlib.contextmanager
def temporary_folder() -> Iterator[Path]:
    """A new folder for the files of a run, which is deleted at the end, together with processes that a worker left behind.

    Within the context, SIGTERM and SIGHUP raise KeyboardInterrupt, as SIGINT does. Further signals do not end the cleaning.
    Raises XverifyError when the folder cannot be written, or was deleted.
    """
    with deferred_signals() as signals, owned_folder() as folder:
        try:
            signals.hear()
            yield folder
        except OSError as error:
            if error.errno in FULL or (error.filename is not None and _is_inside(error.filename, folder)):
                raise XverifyError(
                    f"the temporary folder {folder} cannot be used: {error.strerror}; set TMPDIR to a folder that has enough "
                    "space and that nothing else deletes"
                ) from None
            raise
        finally:
            signals.heard = False


@contextlib.contextmanager
def owned_folder() -> Iterator[Path]:
    """Make a temporary folder and delete it in the end; signals are handled elsewhere.

    A fork of this process does not delete the folder.
    """
    host.check_proc()
    place, owner = _place(), os.getpid()
    remove_stale()
    folder, lock = _make(place)
    try:
        yield folder
    finally:
        lock.close()  # before the folder is read: its descriptor may be the last one that this process can have
        if os.getpid() == owner:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Kill what was left running, and delete the folder.

    A thread that starts a worker may hold the last descriptors of this process, or still write a file: then it is tried again.
    """
    deadline = time.monotonic() + REMOVAL_SECONDS
    while True:
        try:
            kill_marked(folder)
            shutil.rmtree(folder)
            return
        except FileNotFoundError:
            if not folder.exists():  # somebody else deleted it
                return
        except OSError:
            pass
        if time.monotonic() > deadline:
            shutil.rmtree(folder, ignore_errors=True)
            return
        time.sleep(0.05)


def remove_stale() -> None:
    """Delete the folders of processes that were killed, and kill what their workers left running."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError), (folder / LOCK).open("rb+") as lock:
            if not folder.is_symlink() and _lock(lock):
                kill_marked(folder)
                shutil.rmtree(folder, ignore_errors=True)


def _place() -> Path:
    """The folder for temporary files. Raises XverifyError when there is none that can be written."""
    try:
        return Path(tempfile.gettempdir())
    except OSError as error:
        raise XverifyError(
            f"no folder for temporary files can be written: {error.strerror}; set TMPDIR to one"
        ) from None


def _make(place: Path) -> tuple[Path, IO[Any]]:
    """A new folder in this place, and the file in it that is locked."""
    try:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        # The file gets its name when it is locked: until then, nobody takes the folder for one without an owner.
        unnamed = folder / f"{LOCK}.new"
        lock = unnamed.open("wb+")
        _lock(lock)
        unnamed.rename(folder / LOCK)
    except OSError as error:
        raise XverifyError(
            f"no temporary folder can be made in {place}: {error.strerror}; set TMPDIR to a folder that can be written"
        ) from None
    return folder, lock


def _lock(file: IO[Any]) -> bool:
    """Lock a file for this process. Returns False when another process holds the lock, or where the system has no such locks."""
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _is_inside(name: Any, folder: Path) -> bool:
    return isinstance(name, (str, os.PathLike)) and Path(name).is_relative_to(folder)


class _Signals:
    """What becomes of the signals that end a program: they are noted and, where they are heard, raise KeyboardInterrupt.

    A second one shortly after the first is only noted, because the cleaning may have begun.
    """

    def __init__(self) -> None:
        self.heard = False
        self.waiting = False  # whether one has come that has raised nothing yet
        self.raised = -math.inf  # time of the last one that was raised, by the monotonic clock

    def hear(self) -> None:
        """Raise KeyboardInterrupt for signals from now on, and for one that has come before."""
        self.heard = True
        if self.waiting:
            self._interrupt()

    def note(self, number: int, frame: FrameType | None) -> None:
        """Take a signal."""
        if time.monotonic() - self.raised > PATIENCE and not interrupts.postponed(number, frame):
            self.waiting = True
            if self.heard:
                self._interrupt()

    def end(self) -> None:
        """Raise KeyboardInterrupt for a signal that came during the cleaning, unless an earlier one has been raised."""
        if self.waiting and self.raised == -math.inf:
            self._interrupt()

    def _interrupt(self) -> None:
        self.waiting, self.raised = False, time.monotonic()
        raise KeyboardInterrupt


@contextlib.contextmanager
def deferred_signals() -> Iterator[_Signals]:
    """Take the signals of ENDING and SIGINT, where nobody else handles or ignores them, and hear none until the context ends."""
    outer = getattr(signal.getsignal(signal.SIGINT), "__self__", None)
    signals = outer if isinstance(outer, _Signals) else _Signals()
    before, signals.heard = signals.heard, False
    taken = {}
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGINT", *ENDING) if hasattr(signal, name)]
        taken = {number: signal.getsignal(number) for number in numbers if signal.getsignal(number) in interrupts.USUAL}
    for number in taken:
        signal.signal(number, signals.note)
    try:
        yield signals
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        signals.heard = before
    signals.end()
