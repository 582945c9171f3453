"""Weight files and the weights of models, in one canonical form.

The canonical form is a flat mapping *name -> float32 array* in torch's names and layout (see canonical.py). Each file format is
one module with the same two functions:

    load_file(path, trust=False, most=None) -> {name: array}    the arrays as stored; canonical.to_canonical() makes them canonical
    save_file(arrays, path)    arrays: any mapping, each of whose arrays may be read when it is looked up

A format whose files need not be read as a whole has ``open_file`` in place of ``load_file``, with the same arguments: it returns a
mapping that reads an array when it is looked up.

torch.py, jittor.py, onnx.py, tensorflow.py, tensorlayer.py and paddle.py also copy arrays into a built model and out of it
(to_model, from_model). A framework is imported only inside a function that needs it. This package may import errors and reading.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from xverify import reading
from xverify.errors import WeightsError

from . import sharded
from .canonical import Array, Arrays, Converted, check, diff, digest, normal_form, to_canonical

__all__ = [
    "Arrays",
    "check",
    "diff",
    "digest",
    "formats",
    "known_format",
    "load_file",
    "normal_form",
    "open_file",
    "readable",
    "save_file",
    "to_canonical",
]


def formats() -> dict[str, ModuleType]:
    """File suffix -> the module that reads and writes files of this suffix. Every module of this package is searched."""
    found = {}
    for info in iter_modules(__path__):
        module = import_module(f"{__name__}.{info.name}")
        found.update(dict.fromkeys(getattr(module, "SUFFIXES", ()), module))
    return found


def known_format(path: Path) -> ModuleType:
    """The module of the format that the suffix of a path names. Raises WeightsError for an unknown suffix."""
    if sharded.is_sharded(path):
        return sharded
    known = formats()
    if path.suffix not in known:
        problem = (
            f"unknown weight format {path.suffix!r}" if path.suffix else "its name has no suffix that tells the format"
        )
        raise WeightsError(f"{path}: {problem}; known: {', '.join(sorted(known))}")
    return known[path.suffix]


def written_format(path: Path) -> ModuleType:
    """The module that writes the format of this path. Raises WeightsError for a format that is unknown or only read."""
    module = known_format(path)
    if module is sharded:
        raise WeightsError(
            f"{path}: weights are written to one file, e.g. {path.name.removesuffix(sharded.INDEX)}.safetensors"
        )
    if not hasattr(module, "save_file"):
        raise WeightsError(f"{path}: {path.suffix} files are only read; write e.g. {path.stem}.safetensors")
    return module


def load_file(path: str | Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read a weight file of any known format into canonical arrays.

    path: the file; for weights in several .safetensors files also their index or their folder (see ``sharded``).
    trust: allow formats that can run code when they are read; without it such code never runs, and the file is refused.
    most: the greatest size of its arrays together, GB; None: 1, or twice the size of the file when that is more.
    Raises WeightsError when the file is missing, truncated, too large, unsafe to read, or holds no usable tensors.
    """
    return dict(open_file(path, trust, most))


class _OfFile(Converted):
    """The weights of a file, which raise WeightsError for every error of it."""

    def __getitem__(self, name: str) -> Array:
        if name not in self:
            raise KeyError(name)
        with readable(Path(self.source)):
            return super().__getitem__(name)

    def shape(self, name: str) -> tuple[int, ...]:
        with readable(Path(self.source)):
            return super().shape(name)


def open_file(path: str | Path, trust: bool = False, most: float | None = None) -> Mapping[str, Array]:
    """The same arrays as of ``load_file``. Where the format allows it, each is read when it is looked up, and none is kept."""
    path = Path(path)
    wrong = "" if path.is_dir() else reading.problem(path)
    if wrong:
        raise WeightsError(f"{path}: {wrong.replace(reading.ABSENT, 'no such weight file')}")
    module = known_format(path)
    with readable(path):
        opens = getattr(module, "open_file", None)
        if opens is not None:
            return _OfFile(opens(path, trust, most), source=str(path))
        return to_canonical(module.load_file(path, trust, most), source=str(path))


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Raise WeightsError for every error of a file that cannot be read."""
    try:
        yield
    except WeightsError:
        raise
    except ModuleNotFoundError as error:
        raise WeightsError(f"{path}: reading {path.suffix} needs {error.name}: pip install {error.name}") from None
    except MemoryError:
        raise WeightsError(f"{path}: its arrays take more memory than there is") from None
    except Exception as error:
        detail = " ".join(str(error).split())[:200]
        raise WeightsError(
            f"{path}: not a readable {path.suffix} file, or truncated ({type(error).__name__}: {detail})"
        ) from None


def save_file(arrays: Mapping[str, Array], path: str | Path, template: Path | None = None) -> None:
    """Write canonical arrays in the format of the path's suffix. Raises WeightsError for an unknown suffix.

    template: for a format that holds a graph, too: the file that has it; when omitted, the file at this path.
    """
    path = Path(path)
    module = written_format(path)
    try:
        if template is not None and hasattr(module, "TEMPLATE"):
            module.save_file(arrays, path, template)
        else:
            module.save_file(arrays, path)
    except ModuleNotFoundError as error:
        raise WeightsError(f"{path}: writing {path.suffix} needs {error.name}: pip install {error.name}") from None
