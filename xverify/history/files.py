"""The files of a folder that may be results."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from .reading import clean

SUFFIX = ".json"


@dataclass(frozen=True)
class Files:
    """The JSON files of a folder and of the folders in it. Hidden ones are left out, and so is what is no regular file.

    sizes: path within the folder -> (size in bytes, time of the last change in nanoseconds).
    places: path within the folder -> the file, where the two differ by more than the folder.
    folder: the folder.
    closed: number of folders that cannot be read.
    """

    folder: Path
    sizes: dict[str, tuple[int, int]]
    places: dict[str, str]
    closed: int

    def place(self, path: str) -> str:
        """The file of a path within the folder."""
        return self.places.get(path) or os.path.join(self.folder, path)


def scan(folder: str | Path) -> Files:
    """The files of a folder. Links to files are followed, and links to folders are not. Raises UsageError."""
    root = Path(folder)
    try:
        with os.scandir(root):
            pass
    except (OSError, ValueError) as error:
        raise UsageError(f"--results {folder}: {getattr(error, 'strerror', None) or error}") from None
    sizes: dict[str, tuple[int, int]] = {}
    places: dict[str, str] = {}
    closed = 0
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            with os.scandir(os.path.join(root, inside)) as entries:
                for entry in entries:
                    _look(entry, inside, waiting, sizes, places)
        except OSError:  # it may have been removed meanwhile
            closed += 1
    return Files(root, sizes, places, closed)


def _look(
    entry: os.DirEntry[str], inside: str, waiting: list[str], sizes: dict[str, tuple[int, int]], places: dict[str, str]
) -> None:
    """Take one entry of a folder: a folder waits, and a JSON file is added."""
    name = entry.name
    if name.startswith("."):
        return
    path = f"{inside}/{name}" if inside else name
    if entry.is_dir(follow_symlinks=False):
        waiting.append(path)
    elif name.lower().endswith(SUFFIX):
        try:
            found = entry.stat()
        except OSError:  # a link that leads nowhere, or a file that has been removed meanwhile
            return
        if stat.S_ISREG(found.st_mode):
            named = clean(path)
            sizes[named] = (found.st_size, found.st_mtime_ns)
            if named != path:  # a name that is no UTF-8
                places[named] = entry.path
