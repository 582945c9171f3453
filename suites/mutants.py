"""Checks mutated files of one format, one after another, in the process that stands for a user's: ``faults.py`` starts it.

python suites/mutants.py SEED_FILE FOLDER FIRST LAST SEED GIB RUNTIME

It prints one line of JSON for each file: its number, what became of it, why, and the seconds. Every file has the whole check, every
second one against the file before its mutation; the processes that open the files come from a pool.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import sys
import time
import zipfile
from pathlib import Path

import pool

from xverify.checking.api import check
from xverify.errors import UsageError
from xverify.results.records import Result

STEP = 30.0  # seconds that one step of a check may take
CUTS = 12  # the first files are not mutated but cut off
KINDS = 6


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


def examine(path: Path, against: str | None, on: str) -> tuple[str, str]:
    """(what became of the check of a file, why)."""
    try:
        result = check(path, against=against, on=on or None, threads=1, timeout=STEP)
    except UsageError as error:
        return "refused", str(error)
    return row(result)


def row(result: Result) -> tuple[str, str]:
    """What the rows say: the status of the first that is not ok, or its verdict."""
    for each in result.rows:
        if each.status != "ok":
            return each.status, each.reason or ""
    error = result.rows[-1].error
    assert error is not None
    return str(error.verdict), error.reason or ""


def main(original: Path, folder: Path, numbers: range, seed: str, on: str) -> None:
    """Check the files of these numbers."""
    with pool.lend():
        for number in numbers:
            target = folder / str(number) / original.name  # a worker knows a graph by its path
            target.parent.mkdir()
            chance = random.Random(f"{seed}/{original.name}/{number}")
            if number < CUTS:
                cut_copy(original, target, number)
            else:
                mutated_copy(original, target, chance)
            against = str(original) if number % 2 and not original.name.startswith("code") else None
            begun = time.monotonic()
            became, why = examine(target, against, on)
            print(json.dumps([number, became, why, time.monotonic() - begun]), flush=True)
            shutil.rmtree(target.parent)


if __name__ == "__main__":
    made, work, first, last, chosen, gib, runtime = sys.argv[1:]
    limit = int(float(gib) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    main(Path(made), Path(work), range(int(first), int(last)), chosen, runtime)
