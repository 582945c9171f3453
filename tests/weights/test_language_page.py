"""docs/language-model-files.md: its script and its commands are run, and print what the page shows."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "language-model-files.md").read_text()


@pytest.mark.slow
def test_the_example_prints_what_the_page_shows(tmp_path, xverify):
    pytest.importorskip("gguf")
    (script,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    here = tmp_path / "here"  # where the commands are run
    here.mkdir()
    subprocess.run([sys.executable, "-c", script], cwd=here, check=True)
    (shown,) = re.findall(r"^```\n(\$ .*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    examples = re.findall(r"^\$ xverify (.*)\n((?:(?!\$).*\n)+)", shown, re.MULTILINE)
    done = [xverify(*words.split()) for words, _ in examples]
    assert [each.out for each in done] == [out for _, out in examples]
    assert [each.code for each in done] == [0, 1]
