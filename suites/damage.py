"""Damages copies of model files: a few bytes are changed, or the end is missing."""

from __future__ import annotations

import random
import shutil
import zipfile
from pathlib import Path

CUTS = 12  # lengths at which a file is cut off
KINDS = 6  # kinds of mutations


def mutate(data: bytes, chance: random.Random) -> bytes:
    """The bytes with one to four mutations, each at a random place."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, size = chance.randrange(len(changed) + 1), chance.choice((1, 2, 4, 16, 64))
        kind = chance.randrange(KINDS)
        if kind == 0:
            changed[place : place + size] = chance.randbytes(size)
        elif kind == 1 and place < len(changed):
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del changed[place : place + size]
        elif kind == 3:
            changed[place:place] = changed[chance.randrange(len(changed) + 1) :][:size]
        elif kind == 4:
            changed[place : place + 4] = chance.choice((0, 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
        elif chance.random() < 0.3:
            del changed[place:]
        changed = changed or bytearray(b"\0")
    return bytes(changed)


def mutated_copy(original: Path, target: Path, chance: random.Random) -> None:
    """A copy of a file or folder in which one file is mutated; within an archive, mostly one of its members."""
    if original.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(original, target)
        files = sorted(path for path in target.rglob("*") if path.is_file() and path.stat().st_size)
        victim = target / "saved_model.pb" if chance.random() < 0.6 else chance.choice(files)
        victim.write_bytes(mutate(victim.read_bytes(), chance))
        return
    for beside in original.parent.glob(original.stem + ".bin"):
        shutil.copy(beside, target.parent)
    if zipfile.is_zipfile(original) and chance.random() < 0.7:
        with zipfile.ZipFile(original) as archived:
            members = {info.filename: archived.read(info) for info in archived.infolist()}
        name = chance.choice([name for name, content in members.items() if content])
        members[name] = mutate(members[name], chance)
        with zipfile.ZipFile(target, "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
        return
    target.write_bytes(mutate(original.read_bytes(), chance))


def cut_copy(original: Path, target: Path, number: int) -> None:
    """A copy that ends early. number: below CUTS; 0 leaves nothing."""
    if original.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(original, target)
        target, original = target / "saved_model.pb", original / "saved_model.pb"
    content = original.read_bytes()
    target.write_bytes(content[: len(content) * number // CUTS])
