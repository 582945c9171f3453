"""Measures how long commands take to start: the wall-clock time of short commands beside that of Python alone.

python bench/start.py [ROUNDS]          default: 11 rounds, each command once a round; the median is printed

The goal is at most 0.35 s more than Python alone, on two cores that do nothing else.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time

GOAL = 0.35  # seconds
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    **{f"xverify {option}": ["-m", "xverify", option] for option in ("--version", "--help", "list")},
}


def seconds(arguments: list[str], bytecode: str) -> float:
    """The wall-clock seconds of one process. bytecode: a folder for compiled modules, which an installed package has already."""
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    begun = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
        env={**variables, "PYTHONPYCACHEPREFIX": bytecode},
    )
    return time.perf_counter() - begun


def main(rounds: int) -> None:
    """Print the medians, and whether each is within the goal."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    with tempfile.TemporaryDirectory(prefix="xverify-") as bytecode:
        for each in range(rounds + 1):
            for name, arguments in COMMANDS.items():
                elapsed = seconds(arguments, bytecode)
                if each:  # the first round compiles, and fills the caches of files
                    taken[name].append(elapsed)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    alone = medians["python -c pass"]
    for name, median in medians.items():
        more = median - alone
        where = "within" if more <= GOAL else "above"
        verdict = "" if name == "python -c pass" else f"  {more:+.3f} s, {where} the goal of {GOAL} s"
        print(f"{name:20} {median:.3f} s{verdict}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 11)
