"""The folder that holds the results of a sweep: one result file for each cell, found again by the key in its name."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import IO

from .. import reading
from ..errors import NotWritten, UsageError, XverifyError
from ..results.file import read
from ..results.records import Result
from .planning import Planned

LOCK = ".xverify-sweep.lock"
LONGEST = 40  # bytes of its content, the number of a process


class State(Enum):
    """What the folder has of a cell."""

    DONE = "done"
    PARTIAL = "begun"
    MISSING = "missing"


@dataclass(frozen=True)
class Found:
    """What the file of a cell is. result: None unless it is of this cell. problem: why a file that is there is not."""

    state: State
    result: Result | None = None
    problem: str = ""


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    """The lock, which is made where there is none. Raises UsageError for another file, which stays as it is, and NotWritten."""
    try:
        number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
            raise UsageError(
                f"{path} is no lock of xverify sweep, but a link, a device or a folder: remove it"
            ) from None
        raise NotWritten(f"{path}: {error.strerror}") from None
    with open(number, "rb+", buffering=0) as file:
        is_file = stat.S_ISREG(os.fstat(number).st_mode)
        if not is_file or not re.fullmatch(rb"\d*\s*", file.read(LONGEST)):
            raise UsageError(f"{path} is no lock of xverify sweep, which holds a number alone: remove it")
        yield file


class Store:
    """A folder of results. make: make it when it does not exist. Raises NotWritten when it cannot be made."""

    def __init__(self, folder: Path, make: bool = True) -> None:
        self.folder = folder
        if not make:
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NotWritten(f"--results {folder}: {error.strerror}") from None

    @property
    def lock(self) -> Path:
        """The file that is locked while a sweep works in the folder."""
        return self.folder / LOCK

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The folder is for this process alone within the context. Raises UsageError when another sweep works in it."""
        try:
            import fcntl
        except ImportError:  # this system has no such locks
            yield
            return
        with _opened(self.lock) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                process = file.read(LONGEST).decode("ascii").strip()
                raise UsageError(
                    f"another sweep works in {self.folder}{f' (process {process})' if process else ''}: wait for its end, or "
                    "name another folder with --results"
                ) from None
            except OSError:  # a file system without locks
                pass
            with contextlib.suppress(OSError):
                file.seek(0)
                file.truncate()
                file.write(str(os.getpid()).encode("ascii"))
            yield

    def path(self, planned: Planned) -> Path:
        """The result file of a cell."""
        return self.folder / planned.file

    def found(self, planned: Planned) -> Found:
        """What the folder has of this cell. A file that cannot be read, or that has another run, counts as missing.

        Raises UsageError for what is no file, such as a pipe.
        """
        path = reading.present(self.path(planned))
        if path is None:
            return Found(State.MISSING)
        try:
            result = read(path)
        except XverifyError as error:
            return Found(State.MISSING, problem=str(error))
        other = planned.misfit(result)
        if other:
            return Found(State.MISSING, problem=f"{path} is the result of another run: {other}")
        return Found(State.DONE if result.complete else State.PARTIAL, result)

    def state(self, planned: Planned) -> State:
        """The state of this cell."""
        return self.found(planned).state

    def result(self, planned: Planned) -> Result | None:
        """The result of a cell; None when there is none that can be read, and that is of this cell."""
        return self.found(planned).result
