"""The folder that holds the results of a sweep: one result file for each cell, found again by the key in its name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path

import msgspec

from ..errors import NotWritten, UsageError, XverifyError
from ..results.file import read
from ..results.records import SCHEMA_VERSION, Result
from .planning import Planned

LOCK = ".xverify-sweep.lock"


class State(Enum):
    """What the folder has of a cell."""

    DONE = "done"
    PARTIAL = "begun"
    MISSING = "missing"


class _Head(msgspec.Struct):
    """As much of a result file as says whether the run came to its end."""

    schema_version: int
    complete: bool


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

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The folder is for this process alone within the context. Raises UsageError when another sweep works in it."""
        try:
            import fcntl
        except ImportError:  # this system has no such locks
            yield
            return
        path = self.folder / LOCK
        try:
            file = path.open("a+")
        except OSError as error:
            raise NotWritten(f"{path}: {error.strerror}") from None
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                process = file.read(40).strip()
                raise UsageError(
                    f"another sweep works in {self.folder}{f' (process {process})' if process else ''}: wait for its end, or "
                    "name another folder with --results"
                ) from None
            except OSError:  # a file system without locks
                pass
            with contextlib.suppress(OSError):
                file.truncate(0)
                file.write(str(os.getpid()))
                file.flush()
            yield

    def path(self, planned: Planned) -> Path:
        """The result file of a cell."""
        return self.folder / planned.file

    def state(self, planned: Planned) -> State:
        """What the folder has of this cell. A file that is no result, or of another version, counts as missing."""
        try:
            head = msgspec.json.decode(self.path(planned).read_bytes(), type=_Head)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return State.MISSING
        if head.schema_version != SCHEMA_VERSION:
            return State.MISSING
        return State.DONE if head.complete else State.PARTIAL

    def result(self, planned: Planned) -> Result | None:
        """The result of a cell; None when there is none that can be read."""
        try:
            return read(self.path(planned))
        except XverifyError:
            return None
