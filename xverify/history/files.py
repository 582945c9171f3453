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
    closed: list[OSError] = []  # of folders that cannot be read; they may have been removed meanwhile
    for here, folders, names in os.walk(root, onerror=closed.append):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in names:
            if name.startswith(".") or not name.lower().endswith(SUFFIX):
                continue
            file = os.path.join(here, name)
            try:
                found = os.stat(file)
            except OSError:  # a link that leads nowhere, or a file that has been removed meanwhile
                continue
            if stat.S_ISREG(found.st_mode):
                path = file[len(os.path.join(root, "")) :].replace(os.sep, "/")
                named = clean(path)
                sizes[named] = (found.st_size, found.st_mtime_ns)
                if named != path:  # a name that is no UTF-8
                    places[named] = file
    return Files(root, sizes, places, len(closed))
