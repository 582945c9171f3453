"""The Makefile lists its commands, and does nothing else when none is named."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parent.parent / "Makefile"
PARTS = {"fast", "side-by-side", "environments"}  # of other commands


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
