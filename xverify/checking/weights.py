"""Reads the weights of a weight file or of a model file, for ``xverify weights diff``."""

from __future__ import annotations

from pathlib import Path

from .. import weights
from ..errors import SubjectError, UsageError, WeightsError
from ..framework import formats
from ..framework.modelfile import ModelFile, by_name
from ..processes.reading import check, convert_weights, read_graph, read_quantised
from ..processes.space import temporary_folder
from ..progress import Listener
from ..weights import gguf, hdf5, safetensors, sharded
from ..weights.stored import Stored
from .explaining import stored_weights
from .options import CheckSettings
from .subject import File, make_worker, open_file


def read_stored(path: Path, space: Path, trust: bool = False, most: float | None = None) -> Stored:
    """The weights of a file, with its batch norms where it tells them.

    A weight file is read as it is. A model file of another format than ONNX is opened by its own runtime. Both happen in a process
    of its own.

    space: a new file for the arrays, of which each is read when it is looked up. most: see ``weights.load_file``.
    Raises WeightsError, and UsageError for a model file that is damaged, or unsafe to open without ``trust``.
    """
    if path.suffix == ".onnx":
        return _read_onnx(path, space, most)
    shards = path.name.endswith(sharded.INDEX) or (path.is_dir() and any(path.glob("*.safetensors*")))
    if shards or (path.suffix in (*gguf.SUFFIXES, *safetensors.SUFFIXES) and path.is_file()):
        return read_quantised(path, space, most)
    if path.suffix in weights.formats() and path.is_file():
        try:
            return by_name(convert_weights(path, space, trust, most))
        except WeightsError as error:
            is_model = hdf5.HOLDS_MODEL in str(error) if path.suffix in hdf5.SUFFIXES else _is_model(path)
            if not is_model:
                raise
    if not path.is_dir():
        check(path)
    return _open(path, formats.examine(path, "", trust), trust)


def _read_onnx(path: Path, space: Path, most: float | None) -> Stored:
    check(path)
    return read_graph(path, space, most)


def _is_model(path: Path) -> bool:
    """Whether a file with the suffix of a weight file holds a model whose weights can be read without running its code."""
    try:
        return formats.recognise(path).name != "torch-pickle"
    except UsageError:
        return False


def _open(path: Path, form: type[ModelFile], trust: bool) -> Stored:
    settings = CheckSettings(trust=trust)
    with temporary_folder() as space:
        worker = make_worker(path.name, form, space, settings, Listener())
        try:
            return stored_weights(open_file(File(path.name, path, form, worker), settings))
        except SubjectError as error:
            raise WeightsError(f"{path}: {error}") from None
        finally:
            worker.close()
