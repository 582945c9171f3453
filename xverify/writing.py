"""Writes the files that a user names: whole or not at all, through links, and never in place of a device.

A file is written under an unpredictable name in the folder of its target, flushed to the disk, and then renamed, so that an
interruption or a full disk leaves the earlier file as it was. What is no regular file, such as ``/dev/stdout`` or a pipe, is
written directly.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import NotWritten, UsageError, first_line, full_disk

OWN = re.compile(r"/dev/(stdin|stdout|stderr)|(?:/dev|/proc/self)/fd/(\d+)")  # names of this process's own descriptors


WRITTEN: dict[Path, None] = {}  # the files that this process wrote, as they were named


@contextlib.contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A path for a new file of the same name, which takes the place of ``path`` at the end of the block.

    A link stays, and the file that it leads to is replaced. When the block raises, nothing is replaced.
    Raises NotWritten when the system refuses: the disk is full or read-only, the folder is missing, ...
    """
    path = Path(path)
    folder = None
    try:
        with _told(path):
            target = _target(path)
            place = target.parent if is_replaced(path) else None
            folder = tempfile.mkdtemp(prefix=".xverify-", dir=place)
        made = Path(folder, path.name)
        with _told(path):
            yield made
            if place is None:
                _copy(made, path)
                return
            sync(made)
            if target.exists():
                _like(made, target)
            os.replace(made, target)
            WRITTEN[path] = None
            with contextlib.suppress(OSError):  # not every file system can flush a folder
                sync(place)
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def write_text(text: str, path: str | Path) -> None:
    """Write a text file in UTF-8. Raises NotWritten."""
    with replacing(path) as made:
        made.write_bytes(text.encode("utf-8", "backslashreplace"))


def append_text(text: str, path: str | Path) -> None:
    """Append to a text file in UTF-8, which another program may write, too. Raises NotWritten."""
    with _told(Path(path)), open(path, "ab") as file:
        file.write(text.encode("utf-8", "backslashreplace"))


def is_replaced(path: str | Path) -> bool:
    """Whether a file that is written here replaces the one before. A device or a pipe would keep both."""
    path = Path(path)
    return _descriptor(path) is None and (path.is_file() or not path.exists())


def check(flag: str, path: str | Path) -> None:
    """Raise UsageError when a file cannot be made at this path: it is a folder, or its folder is missing or cannot be written."""
    place = Path(path)
    try:
        if place.is_dir():
            raise UsageError(f"{flag} {path} is a folder: name a file in it")
        folder = _target(place).parent
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag} {path}: {getattr(error, 'strerror', None) or error}") from None
    if not folder.is_dir():
        raise UsageError(f"{flag} {path}: the folder {folder} does not exist")
    if not is_replaced(place):
        if _descriptor(place) is None and not os.access(place, os.W_OK):
            raise UsageError(f"{flag} {path} cannot be written")
        return
    try:
        with tempfile.TemporaryDirectory(prefix=".xverify-", dir=folder):
            pass  # permissions alone do not tell: the disk may be read-only
    except OSError as error:
        raise UsageError(f"{flag} {path}: the folder {folder} cannot be written: {error.strerror or error}") from None


def check_new_folder(flag: str, path: str | Path, empty: bool = True) -> None:
    """Raise UsageError when no folder can be made at this path, unless it is one that can be written.

    empty: whether it must be empty, too.
    """
    place = Path(path)
    try:
        if place.is_symlink() and not place.exists():
            raise UsageError(f"{flag} {path} is a link that leads nowhere: name a new folder")
        if place.exists() and not place.is_dir():
            raise UsageError(f"{flag} {path} is a file: name a new folder")
        if empty and place.is_dir() and any(place.iterdir()):
            raise UsageError(f"{flag} {path} exists and is not empty: name a new folder")
        folder = place if place.is_dir() else place.absolute().parent
        if not folder.is_dir():
            raise UsageError(f"{flag} {path}: the folder {folder} does not exist")
        with tempfile.TemporaryDirectory(prefix=".xverify-", dir=folder):
            pass  # permissions alone do not tell: the disk may be read-only
    except (OSError, ValueError) as error:
        raise UsageError(f"{flag} {path} cannot be written: {getattr(error, 'strerror', None) or error}") from None


def sync(path: Path) -> None:
    """Flush a file or folder to the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@contextlib.contextmanager
def _told(path: Path) -> Iterator[None]:
    """Make an error of the system NotWritten."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.strerror:
            raise NotWritten(f"{path} cannot be written: {error.strerror}") from None
        if isinstance(error, OSError) or full_disk(error):
            raise NotWritten(f"{path} cannot be written: {first_line(error)}") from None
        raise


def _target(path: Path) -> Path:
    """The file that a path leads to through links, which need not exist. Raises OSError for links that lead in a circle."""
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    return target


def _like(made: Path, target: Path) -> None:
    """Give a new file the permissions and, where that is allowed, the owner of the one that it replaces."""
    known = target.stat()
    with contextlib.suppress(OSError):
        os.chown(made, known.st_uid, known.st_gid)
    shutil.copymode(target, made)


def _descriptor(path: Path) -> int | None:
    """The number of the descriptor of this process that a path names, as /dev/stdout names 1; None for any other path."""
    match = OWN.fullmatch(os.path.abspath(path))
    if match is None:
        return None
    return int(match[2]) if match[2] else ("stdin", "stdout", "stderr").index(match[1])


def _copy(made: Path, path: Path) -> None:
    """Write the content of a file to a device, a pipe, or a descriptor of this process."""
    number = _descriptor(path)
    if number in (1, 2):
        (sys.stdout, sys.stderr)[number - 1].flush()
    opened = os.open(path, os.O_WRONLY) if number is None else os.dup(number)
    with made.open("rb") as file, open(opened, "wb") as device:
        shutil.copyfileobj(file, device)
