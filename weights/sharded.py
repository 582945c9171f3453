"""Weights in several ``.safetensors`` files (shards), in the layout of Hugging Face.

``model.safetensors.index.json`` has the name of every array with the file that holds it, in ``weight_map``. The user names the
index or its folder. Nothing outside of the folder is read, and the index and the shards must agree.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from xverify import reading
from xverify.errors import WeightsError

from . import safetensors
from .room import Room

INDEX = ".safetensors.index.json"  # end of the name of an index
SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.safetensors")
LARGEST_INDEX = 2**28  # bytes; an entry has about 100, so that this is room for millions
FEW = 5  # names that a message lists


def is_sharded(path: Path) -> bool:
    """Whether a path is that of an index or of a folder."""
    return path.name.endswith(INDEX) or path.is_dir()


def files(path: Path) -> tuple[Path, ...]:
    """All files that the weights are in, with the index where there is one, in the order of their names. Raises WeightsError.

    path: an index, or a folder.
    """
    index, shards = _found(path)
    return (*([] if index is None else [index]), *(_shard(path, _folder(path) / name) for name in shards))


def open_file(path: Path, trust: bool = False, most: float | None = None) -> safetensors.Tensors:
    """All arrays of all shards, as stored. Each is read when it is looked up. Raises WeightsError.

    path: an index, or a folder. trust: without effect, since these files cannot run code. most: see ``room.Room``.
    """
    index, shards = _found(path)
    told = {} if index is None else _weight_map(index)
    paths = {name: _shard(path, _folder(path) / name) for name in shards}
    room = Room(path, most, paths.values())
    for each in paths.values():
        room.take(each.stat().st_size)
    places: dict[str, safetensors.Place] = {}
    holder: dict[str, str] = {}
    for shard, each in paths.items():
        for name, place in _places(each).items():
            if name in holder:
                raise WeightsError(f"{path}: {name!r} is in two shards, {holder[name]} and {shard}")
            holder[name], places[name] = shard, place
    if index is not None:
        _compare(index, told, holder)
    return safetensors.Tensors(places)


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _found(path: Path) -> tuple[Path | None, list[str]]:
    """(the index, None where a folder has none; the names of the shards). Raises WeightsError."""
    if not path.is_dir():
        return path, sorted(set(_weight_map(path).values()))
    names = sorted(each.name for each in path.iterdir())
    indices = [name for name in names if name.endswith(INDEX)]
    if len(indices) == 1:
        return path / indices[0], sorted(set(_weight_map(path / indices[0]).values()))
    if indices:
        raise WeightsError(f"{path}: it has {len(indices)} indices ({_few(indices)}); name one of them")
    shards = [name for name in names if name.endswith(safetensors.SUFFIXES)]
    if not shards:
        raise WeightsError(f"{path}: the folder holds no .safetensors file and no index of such files (*{INDEX})")
    if len(shards) > 1 or SHARD.fullmatch(shards[0]):
        _check_numbers(path, shards)
    return None, shards


def _check_numbers(path: Path, shards: list[str]) -> None:
    """Raise WeightsError unless these are all the shards of one model, by the numbers in their names."""
    matched = {name: SHARD.fullmatch(name) for name in shards}
    first = next((match for match in matched.values() if match), None)
    others = [
        name for name, match in matched.items() if not (match and first and match.group(1, 3) == first.group(1, 3))
    ]
    if first is None or others:
        raise WeightsError(
            f"{path}: its .safetensors files are not the shards of one model ({_few(others)}), and no index says which belong "
            f"together; name one of them, or add the index (*{INDEX})"
        )
    count, have = int(first[3]), {int(match[2]) for match in matched.values() if match}
    if len(have) != count or have != set(range(1, count + 1)):
        missing = next((number for number in range(1, count + 1) if number not in have), None)
        says = f"shard {missing} is missing" if missing is not None else f"it has {len(shards)}"
        raise WeightsError(f"{path}: the names of its shards say that there are {count}, and {says}")


def _weight_map(index: Path) -> dict[str, str]:
    """Name of an array -> name of its shard, as the index says. Raises WeightsError."""
    wrong = reading.problem(index)
    if wrong:
        raise WeightsError(f"{index}: {wrong.replace(reading.ABSENT, 'no such weight file')}")
    _check_link(index, index)
    hook = reading.unique(lambda name: WeightsError(f"{index}: it has {name!r} twice"))
    try:
        with reading.opened(index) as file:
            text = file.read(LARGEST_INDEX + 1)
        if len(text) > LARGEST_INDEX:
            raise WeightsError(f"{index}: it is too large: an index has at most {LARGEST_INDEX:,} bytes")
        told = json.loads(text.decode("utf-8"), object_pairs_hook=hook)
    except OSError as error:
        raise WeightsError(f"{index}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise WeightsError(f"{index}: not a readable index ({type(error).__name__}: {error})") from None
    weight_map = told.get("weight_map") if isinstance(told, dict) else None
    if not isinstance(weight_map, dict) or not weight_map:
        raise WeightsError(f"{index}: it has no weight_map, which has the name of each array with that of its file")
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not shard.endswith(safetensors.SUFFIXES):
            raise WeightsError(f"{index}: {name!r} is in {shard!r}, which is not the name of a .safetensors file")
        if Path(shard).name != shard or "\\" in shard or "\0" in shard:
            raise WeightsError(
                f"{index}: {name!r} is in {shard!r}; a shard must be in the folder of its index, so write its name alone"
            )
    return weight_map


def _shard(path: Path, shard: Path) -> Path:
    """The path of a shard. Raises WeightsError when it is missing, no plain file, or a link that leads out of the folder."""
    if not shard.exists() and not shard.is_symlink():
        raise WeightsError(f"{path}: its shard {shard.name} is missing")
    _check_link(path, shard)
    wrong = reading.problem(shard)
    if wrong:
        raise WeightsError(f"{path}: its shard {shard.name} is not a file; {wrong}")
    return shard


def _check_link(path: Path, file: Path) -> None:
    """Raise WeightsError for a link that leads out of the folder.

    The links of Hugging Face's cache are allowed: they lead from ``snapshots/REVISION`` to ``blobs`` beside ``snapshots``.
    """
    if not file.is_symlink():
        return
    target, folder = Path(os.path.realpath(file)), file.parent.resolve()
    allowed = [folder]
    if folder.parent.name == "snapshots":
        allowed.append(folder.parent.parent / "blobs")
    if target.parent not in allowed:
        raise WeightsError(
            f"{path}: {file.name} is a link to {target}, outside of the folder; copy the file into the folder"
        )


def _places(shard: Path) -> dict[str, safetensors.Place]:
    try:
        return safetensors.places(shard)
    except WeightsError:
        raise
    except Exception as error:  # of a damaged file, any
        detail = " ".join(str(error).split())[:200]
        raise WeightsError(
            f"{shard}: not a readable .safetensors file, or truncated ({type(error).__name__}: {detail})"
        ) from None


def _compare(index: Path, told: dict[str, str], holder: dict[str, str]) -> None:
    """Raise WeightsError unless the index tells what the shards hold. told, holder: name -> shard."""
    unnamed = [name for name in holder if name not in told]
    if unnamed:
        raise WeightsError(
            f"{index}: {holder[unnamed[0]]} holds {unnamed[0]!r}, which the index does not name"
            + (f", nor {len(unnamed) - 1} others" if len(unnamed) > 1 else "")
        )
    for name, shard in told.items():
        if name not in holder:
            raise WeightsError(f"{index}: it says that {name!r} is in {shard}, which does not hold it")
        if holder[name] != shard:
            raise WeightsError(f"{index}: it says that {name!r} is in {shard}; it is in {holder[name]}")


def _few(names: list[str]) -> str:
    return ", ".join(names[:FEW]) + (", …" if len(names) > FEW else "")
