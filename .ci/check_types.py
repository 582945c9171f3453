"""Check the types of xverify/, weights/ and models/ together.

mypy needs them as they are installed, with weights/ and models/ inside of the package, and needs folder names that are
identifiers. So it gets a copy in build/types, and what it says is printed with the paths of the repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "types"


def assemble() -> dict[str, str]:
    """Copy the sources. Return, for every copied file, its path in the repository."""
    shutil.rmtree(COPY / "xverify", ignore_errors=True)
    origin = {}
    folders = [("xverify", "xverify"), ("models", "xverify/models"), ("weights", "xverify/weights")]
    for source, place in folders:
        for file in sorted((ROOT / source).rglob("*.py")):
            inside = file.relative_to(ROOT / source)
            if source == "xverify" and inside.parts[0] in ("models", "weights"):
                continue  # links that some checkouts have
            target = COPY / place / str(inside).replace("-", "_")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)  # with its time, for mypy's cache
            origin[str(target.relative_to(COPY))] = str(file.relative_to(ROOT))
    for folder in (COPY / "xverify").rglob("*/"):
        (folder / "__init__.py").touch()
    return origin


def main() -> int:
    """Print mypy's report. Exit as mypy does."""
    origin = assemble()
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--config-file",
        str(ROOT / "pyproject.toml"),
        "-p",
        "xverify",
        *sys.argv[1:],
    ]
    environment = {**os.environ, "MYPYPATH": str(COPY)}
    done = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True, check=False)
    named = re.sub(r"^[^:\n]+\.py(?=:)", lambda found: origin.get(found[0], found[0]), done.stdout, flags=re.MULTILINE)
    print(named, done.stderr, sep="", end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
