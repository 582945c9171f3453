"""Digests of files, by which a result says what it was computed from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from .. import reading


def file_digest(path: Path) -> str:
    """``sha256:`` and the hash of a file's bytes. A file is read again only when it has changed. Raises OSError."""
    known = path.stat()
    return _hashed(path.resolve(), known.st_ino, known.st_size, known.st_mtime_ns)


def files_digest(paths: Iterable[Path]) -> str:
    """The digest of several files: of their names and digests. Raises OSError."""
    told = "".join(f"{path.name}\0{file_digest(path)}\n" for path in paths)
    return f"sha256:{hashlib.sha256(told.encode()).hexdigest()}"


@lru_cache(maxsize=64)
def _hashed(path: Path, *_: int) -> str:
    sha = hashlib.sha256()
    with reading.opened(path) as file:
        for part in iter(lambda: file.read(2**20), b""):
            sha.update(part)
    return f"sha256:{sha.hexdigest()}"
