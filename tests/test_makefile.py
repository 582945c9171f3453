"""The Makefile lists its commands, and does nothing else when none is named."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parent.parent / "Makefile"
PARTS = {"fast", "side-by-side", "eighth", "environments"}  # of other commands


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("arguments", [[], ["help"]], ids=["bare", "help"])
def test_every_command_is_listed_with_what_it_does(tmp_path, arguments):
    shutil.copy(MAKEFILE, tmp_path)
    done = subprocess.run(["make", *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    listed = dict(re.findall(r"^  make ([a-z-]+) +(\S.*)$", done.stdout, re.MULTILINE))
    targets = set(re.findall(r"^([a-z][a-z-]*):", MAKEFILE.read_text(), re.MULTILINE))
    assert set(listed) == targets - PARTS
    assert len(listed) > 15
    assert not (tmp_path / ".venv").exists()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize(
    ("failing", "named"),
    [("", ""), ("numprocesses", "side-by-side"), ("onnxruntime_web", "web"), ("every 8", "eighth")],
)
def test_a_part_that_fails_does_not_stop_the_other_tests(tmp_path, failing, named):
    shutil.copy(MAKEFILE, tmp_path)
    for name in ("pyproject.toml", "setup.py", "constraints.txt"):
        (tmp_path / name).touch()
    for name in ("python", "xverify"):
        (tmp_path / name).write_text(
            f'#!/bin/sh\necho "ran $*"\ncase "$*" in *"{failing or "nothing"}"*) exit 1;; esac\n'
        )
        (tmp_path / name).chmod(0o755)
    command = ["make", "test", f"BIN={tmp_path}", "STAMP=python", "--assume-old=python"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert sum(line.startswith("ran -m pytest") for line in done.stdout.splitlines()) == 3, done.stdout + done.stderr
    assert (done.returncode != 0) == bool(failing)
    assert (f"make test: these parts failed: {named}\n" in done.stderr) == bool(failing)
