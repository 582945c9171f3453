"""Gives every file that is made to harm to the command line, one after another, in this process: ``faults.py`` starts it.

python suites/springs.py FOLDER PATTERN FIRST GIB

It prints one line of JSON for each file, like mutants.py: its number, what became of it, what was said, the seconds, its name and
the fault. The processes that open the files come from a pool, which saves most of the time; the parent's part is the whole command.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import time
from pathlib import Path

import hostile
import pool
from hostile import ENDS, Trap

from xverify.commands._main import main as command


def spring(trap: Trap, here: Path) -> tuple[str, str, str]:
    """(what became of a file, what the command said, the fault). here: an empty current directory."""
    out, err = io.StringIO(), io.StringIO()
    os.chdir(here)
    arguments = ["check", *trap.arguments, "--timeout", str(hostile.STEP), "--threads", "1"]
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = command(arguments)
        except SystemExit as end:  # of a wrong command line
            code = int(end.code or 0)
    said, told = out.getvalue(), err.getvalue()
    wrong = hostile.fault(trap, code, said, told, here)
    return ENDS.get(code, "crashed"), hostile.last(told if code == 2 else said), wrong


def main(folder: Path, pattern: str, first: int) -> None:
    """Check the files from this number on."""
    traps = list(hostile.make_all(folder, pattern))
    print(json.dumps(len(traps)), flush=True)
    with pool.lend():
        for number, trap in enumerate(traps):
            if number < first:
                continue
            here = folder / f"here-{number}"
            here.mkdir()
            begun = time.monotonic()
            became, said, wrong = spring(trap, here)
            print(json.dumps([number, became, said, time.monotonic() - begun, trap.name, wrong]), flush=True)


if __name__ == "__main__":
    place, only, start, gib = sys.argv[1:]
    limit = int(float(gib) * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.environ["COLUMNS"] = "200"
    main(Path(place), only, int(start))
