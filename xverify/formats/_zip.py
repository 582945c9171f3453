"""Looks into zip archives that may be hostile: nothing is unpacked to disk, and reading has a limit."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from xverify import reading

LIMIT = 2**28  # bytes of one member that are read; no graph or source code of a model is as large
# The end of an archive, and the two records before it in one with wide numbers: a mark, size and place of the directory, and then
# the length of a comment, or the place of the first record.
_END, _WIDE = struct.Struct("<4s8xIIH"), struct.Struct("<4s36xQQ4s4xQ4x")
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


def doubt(path: Path) -> str:
    """Why different programs may find different members in an archive, as a clause; "" where they do not."""
    names = [info.filename.lower() for info in members(path)]
    if len(set(names)) < len(names):
        return f"it holds {next(name for name in names if names.count(name) > 1)!r} twice, which hides one of the two"
    return "" if not names or _is_plain(path) else "its directory does not lie where its end says, which hides members"


def _is_plain(path: Path) -> bool:
    """Whether an archive ends with its directory and the records of its end, and nothing between or behind them."""
    with reading.opened(path) as file:
        whole = file.seek(0, 2)
        file.seek(max(whole - _WIDE.size - _END.size, 0))
        tail = file.read()
    end, wide = tail[-_END.size :], tail[-_END.size - _WIDE.size : -_END.size]
    mark, size, offset, comment = _END.unpack(end)
    if mark != b"PK\5\6" or comment:
        return False
    place = whole - _END.size
    if wide[-20:-16] == b"PK\6\7":
        mark, size, offset, _, at = _WIDE.unpack(wide)
        place -= _WIDE.size
        if mark != b"PK\6\6" or at != place:
            return False
    return bool(offset + size == place)
