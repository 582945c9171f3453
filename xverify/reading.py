"""Opens the files that a user names or keeps in a folder: regular files alone, because a pipe or a device may never end.

Links are followed. The names of this process's own descriptors, such as ``/dev/stdin``, are opened as they are: who writes them
means what stands there.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from .errors import UsageError
from .writing import OWN

NOWHERE = "it is a link that leads nowhere"
ABSENT = "no such file"
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFDIR: "a folder",
}


def opened(path: str | Path) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, whose ``strerror`` says what is there instead; it never waits."""
    if OWN.fullmatch(os.path.abspath(path)):
        return open(path, "rb")
    check(path)
    file = open(path, "rb", opener=_without_waiting)  # noqa: SIM115  the caller closes it
    try:
        _check_kind(os.fstat(file.fileno()), path)  # something else may have taken its place meanwhile
    except BaseException:
        file.close()
        raise
    return file


def content(path: str | Path) -> bytes:
    """The bytes of a regular file. Raises OSError as ``opened`` does."""
    with opened(path) as file:
        return file.read()


def given(path: str | Path) -> bytes:
    """The bytes of a regular file. Raises UsageError, which names it."""
    try:
        return content(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from None


def check(path: str | Path) -> None:
    """Raise OSError as ``opened`` does unless a file is at this path that can be read, which another library will open."""
    try:
        found = os.stat(path)
    except FileNotFoundError as error:
        if os.path.islink(path):
            raise FileNotFoundError(error.errno, NOWHERE, str(path)) from None
        raise
    _check_kind(found, path)
    if not os.access(path, os.R_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))


def problem(path: str | Path) -> str:
    """Why no file can be read at this path, as a sentence for a message; "" where a regular file is."""
    try:
        check(path)
    except FileNotFoundError as error:
        return NOWHERE if error.strerror == NOWHERE else ABSENT
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def present(path: Path) -> Path | None:
    """The path where a regular file is, and None where nothing is. Raises UsageError for anything else there."""
    if not os.path.lexists(path):
        return None
    wrong = problem(path)
    if wrong:
        raise UsageError(f"{path}: {wrong}; put a file there, or remove it")
    return path


def unique(refuse: Callable[[str], Exception]) -> Callable[[list[tuple[str, Any]]], dict[str, Any]]:
    """A hook of ``json.loads`` for a name that an object has twice, of which one would be dropped. refuse: makes the error."""

    def hook(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise refuse(next(name for name in names if names.count(name) > 1))
        return found

    return hook


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_kind(found: os.stat_result, path: str | Path) -> None:
    """Raise OSError unless this is the state of a regular file."""
    if not stat.S_ISREG(found.st_mode):
        kind = KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        number = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.EINVAL
        raise OSError(number, f"it is {kind}, not a file", str(path))
