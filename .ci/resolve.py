"""Check that the tested versions can be installed with every supported Python. Nothing is installed.

It asks for the project with all extras and constraints.txt, and for the pins of every environment, for Linux on x86-64.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from xverify.environments import interpreters

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = tuple((3, minor) for minor in range(10, 15))
PROJECT = ["pyproject.toml", "--extra", "all", "--extra", "dev", "--constraint", "constraints.txt"]
# Everything but Jittor has wheels.
PLATFORM = "x86_64-manylinux_2_28"
PLATFORMS = {"environment mlx": "x86_64-manylinux_2_35"}  # MLX has wheels for newer systems alone, such as Debian 12
WHEELS = ["--only-binary", ":all:", "--no-binary", "jittor", "--no-binary", "tensorlayer"]


def questions() -> list[tuple[str, tuple[int, int], list[str]]]:
    """(what, Python version, uv's arguments) for everything that is asked."""
    asked = [("xverify-frameworks[all,cluster,docs,dev]", version, PROJECT) for version in PYTHONS]
    for pins in sorted((ROOT / "xverify" / "environments").glob("*.txt")):
        wanted = interpreters.wanted(pins)
        asked += [(f"environment {pins.stem}", version, [str(pins)]) for version in PYTHONS if version in wanted]
    return asked


def resolve(question: tuple[str, tuple[int, int], list[str]]) -> str:
    """The reason why it cannot be installed; empty when it can."""
    what, (major, minor), arguments = question
    place = [
        "--python-version",
        f"{major}.{minor}",
        "--python-platform",
        PLATFORMS.get(what, PLATFORM),
        "--no-python-downloads",
    ]
    command = [Path(sys.executable).parent / "uv", "--quiet", "pip", "compile", *arguments, *place, *WHEELS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip()


def main() -> int:
    """Print one line a question. Exit 1 when something cannot be installed."""
    asked = questions()
    with ThreadPoolExecutor(4) as pool:
        reasons = list(pool.map(resolve, asked))
    for (what, (major, minor), _), reason in zip(asked, reasons):
        print(
            f"Python {major}.{minor}: {what}: " + (f"cannot be installed\n{reason}" if reason else "can be installed")
        )
    return 1 if any(reasons) else 0


if __name__ == "__main__":
    sys.exit(main())
