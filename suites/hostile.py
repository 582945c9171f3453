"""Files that are made to harm: each is given to the command line, which must answer in time and in one line, and touch nothing."""

from __future__ import annotations

import fnmatch
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REFUSED, ROW, ANY = "refused", "row", "refused or row"
STEP = 20  # seconds that one step of a check may take
LONGEST = 150.0  # seconds that the whole command may take
ENDS = {0: "judged", 1: "judged", 2: "refused", 3: "failed", 4: "judged"}  # exit code -> column of the table


@dataclass(frozen=True)
class Trap:
    """One hostile file.

    arguments: of ``xverify check``. expect: how it must end: exit code 2, a row, or either.
    says: what the output must contain. never: what it must not contain, such as the content of a file of others.
    """

    name: str
    arguments: tuple[str, ...]
    expect: str = ANY
    says: str = ""
    never: str = ""


@dataclass(frozen=True)
class Answer:
    """What the command did. column: of the table. wrong: the fault; "" for none."""

    column: str
    said: str
    wrong: str
    seconds: float


def make_all(folder: Path, only: str = "*") -> Iterator[Trap]:
    """Make the files, and return those whose names fit a pattern. The names of ONNX files begin with "onnx: "."""
    import hostile_files
    import hostile_onnx

    modules = (hostile_onnx,) if only.startswith("onnx: ") else (hostile_onnx, hostile_files)
    for module in modules:
        place = folder / module.__name__
        place.mkdir()
        yield from (trap for trap in module.make(place) if fnmatch.fnmatch(trap.name, only))


def spring(trap: Trap, folder: Path, gib: float) -> Answer:
    """Check the file by the command line, with a limit of memory."""
    limit = int(gib * 2**30)
    here = folder / "here" / "".join(letter if letter.isalnum() else "-" for letter in trap.name)
    here.mkdir(parents=True)
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "xverify", "check", *trap.arguments, "--timeout", str(STEP), "--threads", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=here,
        env={**os.environ, "COLUMNS": "200"},
        start_new_session=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    try:
        out, err = process.communicate(timeout=LONGEST)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Answer("timeout", "", f"no answer within {LONGEST:g} s", time.monotonic() - begun)
    return Answer(
        ENDS.get(process.returncode, "crashed"),
        last(err if process.returncode == 2 else out),
        fault(trap, process.returncode, out, err, here),
        time.monotonic() - begun,
    )


def last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def fault(trap: Trap, code: int, out: str, err: str, here: Path) -> str:
    """The fault in how a command ended; "" for none."""
    said = out + err
    lines = [
        line for line in err.partition("xverify check: ")[2].splitlines() if line.strip()
    ]  # progress comes before it
    if code not in ENDS:
        return f"it ended with {code}: {last(err)}"
    if "Traceback" in said:
        return f"it shows a traceback: {last(err)}"
    if code == 2 and len(lines) != 1:
        return f"{len(lines)} lines instead of one: {lines[:3]}"
    if (trap.expect == REFUSED and code != 2) or (trap.expect == ROW and code == 2):
        return f"expected: {trap.expect}; it ended with {code}"
    if trap.says not in said:
        return f"it does not say {trap.says!r}"
    if trap.never and trap.never in said:
        return f"it shows {trap.never!r}"
    if os.listdir(here):
        return f"it wrote {os.listdir(here)}"
    return ""
