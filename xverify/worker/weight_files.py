"""The work of a worker that reads or writes a weight file. It needs no model, and only some formats need a framework."""

from __future__ import annotations

from pathlib import Path

from ..errors import Failed, WeightsError, first_line
from ..messages.files import WeightsRead
from ..messages.weights import FileDone, QuantisedRead, ReadFile, ReadGraph, ReadQuantised, WriteFile
from ..weights import gguf, known_format, npz, onnx_graph, open_file, packed, readable, save_file
from ..weights import onnx as onnx_weights
from ..weights.canonical import Converted
from ..weights.quantised import WithSteps
from .handlers import Group


class WeightFileWork(Group):
    """Handlers of requests about weight files."""

    def read_file(self, request: ReadFile) -> FileDone:
        """Convert a weight file to an array file, where the format allows it one array at a time."""
        try:
            npz.save_file(open_file(request.file, request.trust, request.most), Path(request.path))
        except WeightsError as error:
            return FileDone(refused=str(error))
        except MemoryError:
            return FileDone(refused=f"{request.file}: its arrays take more memory than there is")
        return FileDone()

    def read_quantised(self, request: ReadQuantised) -> QuantisedRead:
        """Write the weights of a quantised language model one at a time, and the steps of each."""
        path = Path(request.file)
        try:
            with readable(path):
                found = _quantised(path, request.most)
                arrays = WithSteps(Converted(found, str(path)), found.stepped, found.steps)
                npz.save_file(arrays, Path(request.path))
                types = found.types
        except WeightsError as error:
            return QuantisedRead(refused=str(error))
        return QuantisedRead(dict(types), found.stepped, dict(found.facts), dict(found.unread))

    def write_file(self, request: WriteFile) -> FileDone:
        """Convert an array file to a weight file, where the format allows it one array at a time."""
        try:
            template = Path(request.template) if request.template else None
            save_file(npz.OnDisk(Path(request.path)), request.file, template)
        except WeightsError as error:
            return FileDone(refused=str(error))
        except OSError as error:
            return FileDone(disk=error.strerror or first_line(error))
        except Exception as error:  # torch and safetensors have errors of their own for a disk that is full
            return FileDone(disk=first_line(error))
        return FileDone()

    def read_graph(self, request: ReadGraph) -> WeightsRead:
        """Write the weights of an ONNX file."""
        path = Path(request.file)
        try:
            stored = onnx_graph.stored(onnx_weights.load_model(path, request.most))
        except WeightsError:
            raise
        except ModuleNotFoundError:
            raise Failed(f"{path}: reading .onnx needs onnx: pip install onnx") from None
        except Exception as error:  # of a damaged file, any
            detail = " ".join(str(error).split())[:200]
            raise Failed(
                f"{path}: not a readable .onnx file, or truncated ({type(error).__name__}: {detail})"
            ) from None
        arrays = {name: array for name, array in stored.arrays.items() if array.size}
        npz.save_file(arrays, Path(request.path))
        return WeightsRead(stored.norms, dict(stored.quantised), dict(stored.places))


def _quantised(path: Path, most: float | None) -> gguf.Tensors | packed.Tensors:
    """The weights of a file of GGUF or of .safetensors files. Raises WeightsError."""
    if path.suffix in gguf.SUFFIXES:
        return gguf.opened(path, most)
    return packed.Tensors(known_format(path).open_file(path, False, most), packed.settings_beside(path), path)
