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


@pytest.mark.parametrize(
    ("name", "different", "code"),
    [
        ("sgd", False, 0),
        ("sgd", True, 1),
        ("adafactor", True, 0),
        ("adafactor", False, 1),
    ],
)
def test_the_suite_knows_which_cells_differ(monkeypatch, capsys, name, different, code):
    monkeypatch.setattr(resume, "cell", lambda *_: ("a cell", different))
    assert resume.main(["--only", name, "--pairs", "torch:flax"]) == code
    assert (f"wrong: {name}, torch:flax is {'' if different else 'not '}DIFFERENT" in capsys.readouterr().out) == bool(
        code
    )
