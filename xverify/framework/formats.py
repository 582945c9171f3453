"""Finds file formats by file name, and the format of a file by its content.

Each file ``NAME.py`` in xverify/formats/ is the format NAME. The folders in the environment variable XVERIFY_FORMATS (separated as
in PATH) are searched as well. Names of formats differ from names of frameworks, because a worker is started with either.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import formats, reading
from ..errors import UsageError, nearest
from . import discovery
from .modelfile import ModelFile, refusal
from .runner import Runner

SHOWN = 12  # bytes of an unknown file that a message shows


def files() -> dict[str, Path]:
    """Format name -> its file."""
    return discovery.modules("XVERIFY_FORMATS", formats.__path__[0])


def load(name: str) -> type[ModelFile]:
    """The class of a format. Its framework is not imported. Raises UsageError for an unknown name."""
    known = files()
    if name not in known:
        raise UsageError(f"unknown file format {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    adapter = discovery.load_file(formats.__name__, name, known[name])
    assert issubclass(adapter, ModelFile)
    return adapter


def load_adapter(name: str) -> type[Runner]:
    """The class of a framework or of a format. Raises UsageError for an unknown name."""
    return load(name) if name in files() else discovery.load(name)


def load_all() -> dict[str, type[ModelFile]]:
    """Format name -> class, for every format."""
    return {name: load(name) for name in files()}


def recognise(path: Path, on: str = "") -> type[ModelFile]:
    """The format of a file or folder, for one runtime.

    on: the name of the runtime; "": the one that this format is made for.
    Raises UsageError, with the formats that are known and what the file begins with, when none fits.
    """
    _check_readable(path)
    with _reading(path):
        fitting = [form for form in load_all().values() if form.recognises(path)]
    if not fitting:
        raise UsageError(f"{path}: {describe(path)}. {_known()}")
    chosen = [form for form in fitting if (form.runtime == on if on else not form.on_request)]
    if not chosen:
        runtimes = ", ".join(dict.fromkeys(form.runtime for form in fitting))
        raise UsageError(f"{path}: {on} runs no {fitting[0].title} here; --on takes {runtimes}")
    return chosen[0]


def examine(path: Path, on: str = "", trust: bool = False) -> type[ModelFile]:
    """The format of a file that may be opened.

    trust: allow code in the file to run. Raises UsageError for an unknown, damaged or unsafe file.
    """
    form = recognise(path, on)
    with _reading(path):
        form.check(path)
        risk = "" if trust else form.describe_risk(path)
    if risk:
        raise UsageError(refusal(path, risk))
    return form


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise UsageError where the system cannot read a file, or there is not enough memory to look at it."""
    try:
        yield
    except (OSError, MemoryError) as error:
        said = getattr(error, "strerror", None) or "there is not enough memory to look at it"
        raise UsageError(f"{path} cannot be read: {said}") from None


def _check_readable(path: Path) -> None:
    """Raise UsageError unless there is a file or folder that can be read; a pipe, for example, would never end."""
    try:
        kind = path.stat().st_mode
        if stat.S_ISDIR(kind):
            os.listdir(path)
        elif stat.S_ISREG(kind):
            with reading.opened(path):
                pass
        else:
            raise UsageError(f"{path} is neither a file nor a folder")
    except FileNotFoundError:
        raise UsageError(f"{path}: there is no such file") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _known() -> str:
    return f"Known formats: {', '.join(_unique(form.title for form in load_all().values()))}"


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def describe(path: Path) -> str:
    """What an unknown file or folder is, as far as its beginning shows it."""
    if path.is_dir():
        if (path / "spec.py").is_file():
            return "this is a model folder, not a model file; `xverify run` takes it"
        return "this folder holds no saved_model.pb, so it is no TensorFlow SavedModel"
    with reading.opened(path) as file:
        begin = file.read(512)
    if not begin:
        return "the file is empty"
    if begin.startswith(b"version https://git-lfs"):
        return "this is a Git LFS pointer, and the file itself was not fetched; type: git lfs pull"
    if path.name in ("saved_model.pb", "saved_model.pbtxt"):
        return f"this is a part of a TensorFlow SavedModel; name its folder, {path.parent}"
    if begin.startswith(b"PK"):
        return "this is a zip archive, which is either damaged or truncated, or holds no model of a known format"
    for magic, what in _OTHERS.items():
        if begin.lstrip().startswith(magic):
            return f"this is {what}"
    return f"the content has no known format; it begins with {begin[:SHOWN]!r}"


_OTHERS = {
    b"\x93NUMPY": "a numpy array, not a model",
    b"<!DOCTYPE html": "a web page, not a model",
    b"<html": "a web page, not a model",
    b"\x1f\x8b": "a gzip archive; unpack it first",
    b"GGUF": "a GGUF file, which no runtime here can open",
}
