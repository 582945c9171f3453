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
from pathlib import Path

import pool
from damage import CUTS, cut_copy, mutated_copy

from xverify.checking.api import check
from xverify.errors import UsageError
from xverify.results.records import Result

STEP = 30.0  # seconds that one step of a check may take


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
