"""The adapter that docs/extending.md shows passes what every adapter must pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "extending.md").read_text()


@pytest.mark.slow
def test_the_adapter_of_the_documentation_passes_the_conformance_tests(tmp_path):
    [(path, code)] = re.findall(r"^`(mine/\w+\.py)`\n\n```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    [command] = re.findall(r"^XVERIFY_FRAMEWORKS=\$PWD/mine python -m (pytest .*)$", TEXT, re.MULTILINE)
    (tmp_path / "mine").mkdir()
    (tmp_path / path).write_text(code)
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", *command.split(), "-p", "no:cacheprovider"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**outside, "XVERIFY_FRAMEWORKS": str(tmp_path / "mine")},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed, done.stdout
    assert int(passed[1]) >= 7, done.stdout
    assert "failed" not in done.stdout.splitlines()[-1]
    assert "skipped" not in done.stdout.splitlines()[-1]
