"""Looks into zip archives that may be hostile: nothing is unpacked to disk, and reading has a limit."""

from __future__ import annotations

import json
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from xverify import reading

LIMIT = 2**28  # bytes of one member that are read; no graph or source code of a model is as large


UNIQUE = reading.unique(lambda name: ValueError(f"an object in it has {name!r} twice"))


class TooLarge(ValueError):
    """A member is larger than LIMIT."""


# Everything that reading a damaged archive raises.
ERRORS = (zipfile.BadZipFile, zlib.error, OSError, ValueError, NotImplementedError, RuntimeError, EOFError, KeyError)


def members(source: Path | IO[bytes]) -> list[zipfile.ZipInfo]:
    """What an archive holds; [] when the file is no whole zip archive."""
    if isinstance(source, Path) and not source.is_file():
        return []
    with suppress(*ERRORS), zipfile.ZipFile(source) as archive:
        return archive.infolist()
    return []


def inner_names(path: Path) -> set[str]:
    """The names of the members without the folder that torch puts them into."""
    return {info.filename.partition("/")[2] or info.filename for info in members(path)}


def read(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    """The content of a member. Raises TooLarge, or one of ERRORS."""
    with archive.open(info) as file:
        content = file.read(LIMIT + 1)
    if len(content) > LIMIT:
        raise TooLarge(f"{info.filename} is larger than {LIMIT >> 20} MiB")
    return content


def read_json(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """The JSON value in a member. Raises TooLarge, RecursionError, or one of ERRORS."""
    return json.loads(read(archive, info), object_pairs_hook=UNIQUE)


def repeated(path: Path) -> str:
    """A name that occurs more than once, which different programs resolve differently; "" when there is none."""
    names = [info.filename.lower() for info in members(path)]
    return next((name for name in names if names.count(name) > 1), "") if len(set(names)) < len(names) else ""
