"""The suite of training on ranks: each kind as `make ranks` runs it, and what the suite says about a wrong answer."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
import ranks

KINDS = {each.folder.name: each for each in ranks.kinds()}


def test_every_fault_can_be_planted(tmp_path):
    for name, kind in KINDS.items():
        kind.planted(tmp_path / name)
    assert sum(len(kind.faults) for kind in KINDS.values()) >= 40


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_kind_is_right_and_its_faults_are_found(name, capsys):
    counts = ranks.check(KINDS[name], 2)
    assert counts["WRONG"] == 0, capsys.readouterr().out
    assert counts["EQUAL"] == 1
    assert counts["caught"] == counts["placed"] == len(KINDS[name].faults)


@pytest.mark.slow
def test_wrong_answers_are_counted(tmp_path, capsys):
    """A right file that is wrong, a fault that is none, one at another place and one that is not named."""
    kind = KINDS["uneven"]
    shutil.copytree(kind.folder, tmp_path / "net")
    file = tmp_path / "net" / "torch.py"
    first = kind.faults[0]
    right = file.read_text()
    file.write_text(right.replace(first.old, first.new))
    faults = (
        replace(first, old=first.new, new=first.old),
        replace(first, old="nn.Linear(12, 16)", new="nn.Linear(12, 16, True)", at="^loss"),
        replace(first, old="import torch\n", new="import torch\n\n", says="no such sentence"),
    )
    counts = ranks.check(replace(kind, folder=file.parent, faults=faults), 2)
    assert (counts["EQUAL"], counts["caught"]) == (0, 2)
    assert counts["WRONG"] == 4
    said = capsys.readouterr().out
    assert "missed" in said
    assert "placed elsewhere than at ^loss" in said
    assert "not named: no such sentence" in said
