"""Reads the weights of a weight file or of a model file, for ``xverify weights diff``."""

from __future__ import annotations

import tempfile
from pathlib import Path

from .. import weights
from ..errors import SubjectError, UsageError, WeightsError
from ..framework import formats
from ..framework.modelfile import ModelFile, by_name
from ..progress import Listener
from ..weights import onnx_graph
from ..weights.stored import Stored
from .explaining import stored_weights
from .options import CheckSettings
from .subject import make_worker, open_file

ONNX = "onnx"


def read_weights(path: Path, trust: bool = False) -> Stored:
    """The weights of a file, with its batch norms where it tells them.

    A weight file is read as it is. A model file of another format than ONNX is opened by its own runtime, in a process of its own.
    Raises WeightsError, and UsageError for a model file that is damaged, or unsafe to open without ``trust``.
    """
    if path.suffix == ".onnx":
        return _read_onnx(path)
    if path.suffix in weights.formats() and path.is_file():
        try:
            return by_name(weights.load_file(path, trust))
        except WeightsError:
            if not _is_model(path):
                raise
    elif not path.exists():
        raise WeightsError(f"{path}: no such weight file")
    return _open(path, formats.examine(path, "", trust), trust)


def _read_onnx(path: Path) -> Stored:
    if not path.is_file():
        raise WeightsError(f"{path}: no such weight file")
    formats.examine(path)
    try:
        import onnx
    except ModuleNotFoundError:
        raise WeightsError(f"{path}: reading .onnx needs onnx: pip install onnx") from None
    try:
        return onnx_graph.stored(onnx.load(path))
    except Exception as error:
        detail = " ".join(str(error).split())[:200]
        raise WeightsError(
            f"{path}: not a readable .onnx file, or truncated ({type(error).__name__}: {detail})"
        ) from None


def _is_model(path: Path) -> bool:
    """Whether a file with the suffix of a weight file holds a model whose weights can be read without running its code."""
    try:
        return formats.recognise(path).name != "torch-pickle"
    except UsageError:
        return False


def _open(path: Path, form: type[ModelFile], trust: bool) -> Stored:
    settings = CheckSettings(trust=trust)
    with tempfile.TemporaryDirectory(prefix="xverify-") as space:
        worker = make_worker(path.name, form, Path(space), settings, Listener())
        try:
            return stored_weights(open_file(path.name, path, worker, settings))
        except SubjectError as error:
            raise WeightsError(f"{path}: {error}") from None
        finally:
            worker.close()
