"""A sample of the table of docs/resuming.md."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorflow")
sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
import resume

pytestmark = pytest.mark.slow


def test_a_sample_of_the_suite(capsys):
    assert resume.main(["--only", "nesterov", "--pairs", "torch:tensorflow"]) == 0
    assert "| nesterov | EQUAL" in capsys.readouterr().out
