"""One compiled core of Jittor for all installations of the same files.

Jittor compiles its core for minutes, once for each folder that it is imported from: the path is part of the name of its cache, and
of what it compiles. A second checkout or virtual environment would wait again. Where an installation has no core of its own yet,
Jittor is therefore imported from a copy of its files in the user's cache. The copy's path has the digest of the files, so that
installations with the same files have one core, and one that somebody changed has another.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path

PACKAGES = ("jittor", "jittor_utils")
# Where Jittor keeps a compiled core: version, compiler, Python, system, processor, folder of the installation, name of the cache.
COMPILED = "jt*/*/py*/*/*/{folder}*/*/jittor_core*"


def is_compiled(cache: Path) -> bool:
    """Whether the core that this Python would import is compiled. cache: Jittor's folder of compiled cores.

    An installation in another Python's environment cannot be seen from here; then any core counts.
    """
    site = installed()
    if site is None:
        return any(cache.glob(COMPILED.format(folder="")))
    return _has_core(site, cache) or _has_core(_copy_of(site), cache)


def use(cache: Path) -> None:
    """Let ``import jittor`` take the files whose core is compiled, or that other installations share. Arguments: see above."""
    site = installed()
    if site is None or "jittor" in sys.modules or _has_core(site, cache):
        return
    copy = _copy_of(site)
    try:
        if not copy.is_dir() or _digest(copy) != copy.name:
            _make(copy, site)
    except OSError:
        return  # a cache that cannot be written is not worth an error: the core is compiled for this installation
    sys.path.insert(0, str(copy))


def installed() -> Path | None:
    """The folder that Jittor is installed in; None when it is not."""
    specs = [importlib.util.find_spec(name) for name in PACKAGES]
    if not all(spec and spec.origin for spec in specs):
        return None
    places = {Path(str(spec and spec.origin)).parent.parent for spec in specs}
    return places.pop() if len(places) == 1 else None


def _has_core(site: Path, cache: Path) -> bool:
    """Whether the core is compiled that Jittor uses when it is imported from this folder."""
    source = site / "jittor_utils" / "__init__.py"
    folder = hashlib.md5(str(source).encode(), usedforsecurity=False).hexdigest()[:4]  # as Jittor names it
    return any(cache.glob(COMPILED.format(folder=folder)))


def _copy_of(site: Path) -> Path:
    """The folder in the user's cache that has, or would have, a copy of these files."""
    cache = Path(os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))
    return cache / "xverify" / "jittor" / _digest(site)


def _digest(site: Path) -> str:
    """The digest of the names and contents of all files of the packages, without what Python compiles."""
    found = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((site / package).rglob("*")):
            if path.is_file() and path.suffix != ".pyc":
                found.update(f"{path.relative_to(site)}\0{path.stat().st_size}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()[:16]


def _make(copy: Path, site: Path) -> None:
    """Copy the packages, beside the place and then into it, so that no process sees half of them."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=copy.parent, prefix="copying-") as folder:
        for package in PACKAGES:
            shutil.copytree(site / package, Path(folder) / "new" / package, ignore=shutil.ignore_patterns("*.pyc"))
        shutil.rmtree(copy, ignore_errors=True)  # it was changed
        (Path(folder) / "new").rename(copy)
