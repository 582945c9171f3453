"""The adapters that docs/adding-a-framework.md shows pass what every adapter must pass."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnx")
ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "adding-a-framework.md").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnxreference", "openvinotorch"], ids=["first", "second"])  # -k NAME leaves it out
def test_the_adapters_of_the_documentation_pass_the_conformance_tests(tmp_path, name):
    path = f"mine/{name}.py"
    [code] = re.findall(rf"^`{path}`\n\n```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    [command] = re.findall(rf"^XVERIFY_FRAMEWORKS=\$PWD/mine python -m (pytest .* {name})$", TEXT, re.MULTILINE)
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
