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

from . import npz
from .canonical import MOST_LISTED, Array, Arrays, Streamed, Variables
from .room import Room

SUFFIXES = (".pt", ".pth", ".bin")
DOS_FOLDER = 0x10  # bit of a member's external attributes


class Tensors(Streamed):
    """The arrays of tensors. An array shares the memory of its tensor where numpy has its dtype."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:  # Any: torch.Tensor, not imported here
        self.names = self.tensors = tensors

    def __getitem__(self, name: str) -> Array:
        return _array(self.tensors[name])

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)


class OfFile(Tensors):
    """The arrays of a checkpoint. They are copies, because the memory of the tensors may be the file, which others may change."""

    def __getitem__(self, name: str) -> Array:
        return super().__getitem__(name).copy()


def open_file(path: Path, trust: bool = False, most: float | None = None) -> OfFile:
    """The state_dict of a checkpoint, mapped into memory unless its archive is compressed. Raises WeightsError for other content.

    trust: also run code that the file holds. most: see ``room.Room``.
    """
    records = _check_archive(path, most)
    tensors = _state(path, trust, mapped=bool(records))
    if records and not _records(tensors) <= records:
        tensors = _state(path, trust, mapped=False)  # of another byte order, or torch says what is wrong with it
    room = Room(path, most)
    for tensor in tensors.values():  # one that is expanded takes more than the file
        room.take(tensor.numel() * tensor.element_size())
    return OfFile(tensors)


def _state(path: Path, trust: bool, mapped: bool) -> Variables:
    """The state_dict of a checkpoint. mapped: whether its tensors are the file itself, mapped into memory."""
    import torch

    try:
        stored = torch.load(path, map_location="cpu", weights_only=not trust, mmap=mapped)
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
    return _without_aliases(stored)


def _records(tensors: Mapping[str, Any]) -> set[tuple[int, int]]:
    """(size, checksum) of the memory of all tensors. torch does not check that what it maps is one record of the archive."""
    import torch

    memory = {
        (each.data_ptr(), each.nbytes()): each for each in (tensor.untyped_storage() for tensor in tensors.values())
    }
    as_bytes = (torch.empty(0, dtype=torch.uint8).set_(each).numpy() for each in memory.values())
    return {(each.size, zlib.crc32(each)) for each in as_bytes}


def _check_archive(path: Path, most: float | None) -> set[tuple[int, int]]:
    """(size, checksum) of the records of an archive in which nothing is compressed; none for another file.

    Raises WeightsError for an archive that unpacks to more than there is room for, or that torch would misread.

    torch does not compare checksums. Of a member that is a folder or cannot be unpacked it reads nothing, and shows as weights what
    was in memory before. Of two members with one name it reads one.
    """
    with path.open("rb") as file:
        if file.read(4) != b"PK\x03\x04":  # torch's own test of what is an archive
            return set()
    room, names = Room(path, most), set[str]()
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            room.take(info.file_size)
            if info.filename in names:
                raise WeightsError(f"{path}: two members of the archive have the name {info.filename!r}")
            names.add(info.filename)
        for info in archive.infolist():
            _check_member(archive, info, path)
        plain = all(info.compress_type == zipfile.ZIP_STORED for info in archive.infolist())
        return {(info.file_size, info.CRC) for info in archive.infolist()} if plain else set()


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


def save_file(arrays: Mapping[str, Array], path: Path) -> None:
    """Write a state_dict. Arrays of files that xverify wrote stay there until torch writes them."""
    import torch

    held = arrays.together() if isinstance(arrays, npz.OnDisk) else arrays
    torch.save(
        {name: torch.from_numpy(np.require(array, requirements=["C", "W"])) for name, array in held.items()}, path
    )


def _array(tensor: Any) -> Array:
    tensor = whole(tensor.detach()).cpu()
    if str(tensor.dtype) == "torch.bfloat16":  # numpy has no bfloat16; float32 represents every bfloat16 exactly
        tensor = tensor.float()
    array: Array = tensor.numpy()
    return array


def _without_aliases(state: Mapping[str, Any]) -> Variables:
    """The state_dict with each tied tensor once, under the first of its names."""
    seen: set[tuple[Any, ...]] = set()
    result = {}
    for name, tensor in state.items():
        here = tensor.to_local() if hasattr(tensor, "to_local") else tensor
        place = (here.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if here.numel() == 0 or place not in seen:
            result[name] = tensor
        seen.add(place)
    return result


class OfModel(Tensors):
    """The floating-point parameters and buffers of a model."""

    def __init__(self, model: Any) -> None:
        state = _without_aliases(model.state_dict())
        super().__init__({name: tensor.detach() for name, tensor in state.items() if tensor.is_floating_point()})


def from_model(model: Any) -> Arrays:
    """Name -> a copy of each floating-point parameter and buffer."""
    return {name: array.copy() for name, array in OfModel(model).items()}


def to_model(model: Any, arrays: Mapping[str, Array]) -> None:
    """Set these parameters and buffers. Names and shapes must have been checked."""
    import torch

    state = model.state_dict()
    with torch.no_grad():
        for name, array in arrays.items():
            given = torch.from_numpy(array if array.flags.writeable else np.array(array))
            state[name].copy_(divided_as(given, state[name]))


def whole(tensor: Any) -> Any:
    """A tensor of which a rank may have a part, as a whole one; all ranks must call this in the same order."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def divided_as(tensor: Any, other: Any) -> Any:
    """A whole tensor, which every rank has, divided among the ranks as another one is."""
    if not hasattr(other, "full_tensor"):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)
