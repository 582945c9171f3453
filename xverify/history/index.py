"""The index of a folder: a file of DuckDB that is never changed in place.

A new index is made as a copy of the old one, and takes its place when it is whole. So a reader always sees a whole index, two
processes never wait for each other, and an interruption leaves the old index. When two processes bring it up to date at once, the
later one stays; what it lacks is read at the next call.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from .. import reading, writing
from ..errors import NotWritten, UsageError, XverifyError, first_line
from ..progress import Listener
from .files import Files
from .tables import Connection
from .update import Known, begin, bring_up_to_date

Answer = TypeVar("Answer")
NAME = ".xverify-history.duckdb"
LOG = ".wal"  # the end of the name of the file beside it in which DuckDB keeps unfinished changes
LOCK_SECONDS = 10.0  # a program that changes the index in place keeps others from reading it
MAGIC = (8, b"DUCK")  # the place and the beginning of every file of DuckDB
REMADE = "the index was damaged, and has been made again"
LOCKED = ("Could not set lock", "used by another process")  # on Linux and macOS, and on Windows
# What a question of a user may do: read these tables, and nothing else.
CLOSED = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",
    "lock_configuration": "true",
}


def duckdb() -> Any:
    """The module of DuckDB. Raises UsageError where it is not installed."""
    try:
        import duckdb as found
    except ModuleNotFoundError:
        raise UsageError("a history needs DuckDB, which is not installed: pip install duckdb") from None
    return found


def asked(
    files: Files, named: str | Path | None, listener: Listener, question: Callable[[Connection], Answer]
) -> tuple[Answer, tuple[str, ...]]:
    """Ask a question to the index of these files, brought up to date. Returns the answer, and notes for the user.

    named: the file that the user named for it; None for NAME in the folder. When that cannot be written, the index is temporary.
    question: may be asked a second time, when the index is found to be damaged.
    Raises UsageError for a named file that is something else, and NotWritten for one that cannot be written.
    """
    try:
        with _opened(files, named, listener) as (connection, notes):
            return question(connection), notes
    except duckdb().Error as error:
        if not is_damage(error):
            raise
    try:
        with _opened(files, named, listener, afresh=True) as (connection, notes):
            return question(connection), notes
    except duckdb().Error as error:
        if not is_damage(error):
            raise
        path = named or files.folder / NAME
        raise UsageError(
            f"{path} cannot be opened, also when it is new: {first_line(error)}. Remove it, and {path}{LOG} beside it"
        ) from None


def is_damage(error: Exception) -> bool:
    """Whether an error of DuckDB is about its file, and not about the question."""
    module = duckdb()
    kinds = (module.IOException, module.InternalException, module.FatalException, module.SerializationException)
    return type(error) is module.Error or isinstance(error, kinds)


@contextmanager
def _opened(
    files: Files, named: str | Path | None, listener: Listener, afresh: bool = False
) -> Iterator[tuple[Connection, tuple[str, ...]]]:
    """The index as a connection that can only read, and notes. afresh: make it again, whatever there is."""
    path = Path(named) if named is not None else files.folder / NAME
    if named is not None:
        _refuse_other_files(path)
    else:
        reading.present(path)
        if path.is_symlink():
            raise UsageError(
                f"{path} is a link, through which no index is written: remove it, or name the index with --index"
            )
    notes = [REMADE] if afresh else []
    with ExitStack() as stack:
        connection = None if afresh else _present(path, files, notes, named is not None)
        if connection is None:
            place, copied = path, None if afresh else path
            try:
                _replace(path, files, listener, copied)
            except NotWritten as error:
                if named is not None:
                    raise
                place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="xverify-")), NAME)
                _replace(place, files, listener, copied)
                notes.append(f"the index is not kept, so the next call reads new files again: {error}")
            connection = _connect(place, read_only=True, config=CLOSED)
        stack.callback(connection.close)
        yield connection, tuple(notes)


def _refuse_other_files(path: Path) -> None:
    """Raise UsageError when a file that the user named is something else than an index, which must not be replaced."""
    begins_at, magic = MAGIC
    try:
        head = _head(path, begins_at + len(magic)) if path.is_file() else b""
    except OSError as error:
        raise UsageError(f"--index {path}: {error.strerror}") from None
    if not writing.is_replaced(path) or (head and head[begins_at:] != magic):
        raise UsageError(f"--index {path} is no index of xverify history, and is not replaced: name another file")


def _head(path: Path, size: int) -> bytes:
    with reading.opened(path) as file:
        return file.read(size)


def _present(path: Path, files: Files, notes: list[str], is_named: bool) -> Connection | None:
    """The index at this path when it is up to date, to be read alone; otherwise None.

    is_named: whether the user named the file. Then it may be something else, and UsageError is raised when it is.
    """
    if not path.exists():
        return None
    try:
        connection = _connect(path, read_only=True, config=CLOSED)
        try:
            known = Known.read(connection, files.folder, path)
        except BaseException:
            connection.close()
            raise
    except duckdb().Error:
        if is_named:
            raise UsageError(
                f"--index {path} is damaged, or no index of xverify history, and is not replaced: remove it, or name "
                "another file"
            ) from None
        notes.append(REMADE)
        return None
    if known is not None and known.is_up_to_date(files):
        return connection
    connection.close()
    return None


def _replace(path: Path, files: Files, listener: Listener, copied: Path | None) -> None:
    """Write an up-to-date index. copied: the present one, from which it is made; None for none. Raises NotWritten."""
    with writing.replacing(path) as made:
        try:
            known = _copy(copied, path, made, files) if copied is not None else None
            try:
                _write(made, path, known, files, listener)
            except duckdb().Error:
                if known is None:
                    raise
                made.unlink(missing_ok=True)  # the present one may be damaged where nobody has looked
                _write(made, path, None, files, listener)
        except duckdb().Error as error:
            raise NotWritten(f"{path} cannot be written: {first_line(error)}") from None


def _write(made: Path, path: Path, known: Known | None, files: Files, listener: Listener) -> None:
    """Bring a file up to date that will be the index at this path. known: what it holds; None when there is no such file yet."""
    with _connect(made) as connection:
        if known is None:
            begin(connection, files.folder, path)
        bring_up_to_date(connection, known or Known(), files, listener)
        connection.execute("CHECKPOINT")  # closing would do it, too, but does not tell of a full disk


def _copy(copied: Path, path: Path, made: Path, files: Files) -> Known | None:
    """Copy the present index. Returns what it holds; None, without a copy, when there is none that can be used.

    Another process may have replaced it since it was looked at.
    """
    try:
        shutil.copyfile(copied, made)
        with _connect(made) as connection:
            known = Known.read(connection, files.folder, path)
    except (OSError, duckdb().Error):
        known = None
    if known is None:
        made.unlink(missing_ok=True)
    return known


def _connect(path: Path, **settings: Any) -> Connection:  # settings: those of duckdb.connect
    """Open a file of DuckDB. Wait while another program changes it. Raises XverifyError when it does not end."""
    log = Path(f"{path}{LOG}")
    if os.path.lexists(log) and not log.is_file():
        raise UsageError(f"{log} is no file, and DuckDB has the log of {path.name} there: move it to another place")
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return duckdb().connect(str(path), **settings)
        except duckdb().IOException as error:
            if not any(words in str(error) for words in LOCKED):
                raise
            if time.monotonic() > until:
                raise XverifyError(
                    f"{path} is open in another program: close it there, or name another file with --index"
                ) from None
            time.sleep(0.1)
