"""PyTorch: checkpoint files and modules. Canonical names and layout are torch's own."""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import WeightsError

from .canonical import MOST_LISTED, Array, Arrays, Streamed
from .room import Room

SUFFIXES = (".pt", ".pth", ".bin")
DOS_FOLDER = 0x10  # bit of a member's external attributes


def load_file(path: Path, trust: bool = False, most: float | None = None) -> Arrays:
    """Read the state_dict of a checkpoint. Raises WeightsError for any other content.

    trust: also run code that the file holds. most: see ``room.Room``.
    """
    import torch

    _check_archive(path, most)
    try:
        stored = torch.load(path, map_location="cpu", weights_only=not trust)
    except pickle.UnpicklingError as error:
        if "weights_only" not in str(error).lower():
            raise
        why = next((line.strip() for line in str(error).splitlines() if "GLOBAL" in line), "it holds more than tensors")
        raise WeightsError(
            f"{path}: refused, reading it could run any code ({why}); save its state_dict instead, or pass --trust if you "
            "trust its author"
        ) from None
    if isinstance(stored, torch.nn.Module):
        stored = stored.state_dict()
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict (name -> tensor)")
    strange = {name: type(value).__name__ for name, value in stored.items() if not isinstance(value, torch.Tensor)}
    if strange:
        inner = [name for name in strange if isinstance(stored[name], dict)]
        hint = f"; save checkpoint[{inner[0]!r}] alone" if inner else ""
        raise WeightsError(
            f"{path}: not a plain state_dict: {', '.join(f'{n} is a {t}' for n, t in list(strange.items())[:MOST_LISTED])}{hint}"
        )
    odd = next((name for name in stored if not isinstance(name, str)), None)
    if odd is not None:
        raise WeightsError(f"{path}: the name {odd!r} is a {type(odd).__name__}, not a text")
    odd = next((n for n, tensor in stored.items() if tensor.layout != torch.strided or tensor.is_quantized), None)
    if odd is not None:
        raise WeightsError(f"{path}: {odd} is a sparse or quantised tensor; store it as a dense floating-point tensor")
    tensors, room = _without_aliases(stored), Room(path, most)
    for tensor in tensors.values():  # one that is expanded takes more than the file
        room.take(tensor.numel() * tensor.element_size())
    return {name: _array(value).copy() for name, value in tensors.items()}


def _check_archive(path: Path, most: float | None) -> None:
    """Raise WeightsError for an archive that unpacks to more than there is room for, or that torch would misread.

    torch does not compare checksums. Of a member that is a folder or cannot be unpacked it reads nothing, and shows as weights what
    was in memory before. Of two members with one name it reads one.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":  # torch's own test of what is an archive
            return
    room, names = Room(path, most), set[str]()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            room.take(info.file_size)
            if info.filename in names:
                raise WeightsError(f"{path}: two members of the archive have the name {info.filename!r}")
            names.add(info.filename)
        for info in archive.infolist():
            _check_member(archive, info, path)


def _check_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: Path) -> None:
    """Raise WeightsError unless a member can be unpacked and has its checksum."""
    if info.file_size and (info.is_dir() or info.external_attr & DOS_FOLDER):
        raise WeightsError(f"{path}: the member {info.filename!r} of the archive is a folder with content")
    try:
        with archive.open(info) as member:
            while member.read(2**20):
                pass
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        hint = (
            ""
            if "CRC" not in str(error)
            else "; it is damaged, or torch.serialization.set_crc32_options(False) was in use"
        )
        raise WeightsError(
            f"{path}: the member {info.filename!r} of the archive cannot be read: {error or 'it ends too early'}{hint}"
        ) from None


def save_file(arrays: Arrays, path: Path) -> None:
    """Write a state_dict."""
    import torch

    torch.save({name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}, path)


def _array(tensor: Any) -> Array:
    tensor = tensor.detach().cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no bfloat16; float32 represents every bfloat16 exactly
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array


def _without_aliases(state: Mapping[str, Any]) -> dict[str, Any]:  # Any: torch.Tensor, not imported here
    """The state_dict with each tied tensor once, under the first of its names."""
    seen: set[tuple[Any, ...]] = set()
    result = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() == 0 or place not in seen:
            result[name] = tensor
        seen.add(place)
    return result


class OfModel(Streamed):
    """The floating-point parameters and buffers of a model. An array shares the memory of its tensor where numpy has its dtype."""

    def __init__(self, model: Any) -> None:
        state = _without_aliases(model.state_dict())
        self.names = self.tensors = {
            name: tensor.detach() for name, tensor in state.items() if tensor.is_floating_point()
        }

    def __getitem__(self, name: str) -> Array:
        return _array(self.tensors[name])

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)


def from_model(model: Any) -> Arrays:
    """Name -> a copy of each floating-point parameter and buffer."""
    return {name: array.copy() for name, array in OfModel(model).items()}


def to_model(model: Any, arrays: Mapping[str, Array]) -> None:
    """Set these parameters and buffers. Names and shapes must have been checked."""
    import torch

    state = model.state_dict()
    with torch.no_grad():
        for name, array in arrays.items():
            state[name].copy_(torch.from_numpy(array if array.flags.writeable else np.array(array)))
