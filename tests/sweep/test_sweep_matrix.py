"""The cells of a sweep: combinations, exclusions, and one clear line about whatever is wrong in its file."""

import pytest

from xverify.errors import UsageError
from xverify.sweep import matrix
from xverify.sweep.planning import Planned, checked, plan


def cells(tmp_path, text, **given):
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    return matrix.read(file, given)


def names(found):
    return [cell.name for cell in found]


def test_every_combination_is_a_cell_without_those_that_are_excluded_and_with_those_that_are_included(tmp_path):
    found = cells(
        tmp_path,
        """
        [matrix]
        model = ["mlp", "resnet18"]
        task = ["forward", "train"]
        batch = [1, 8]
        [settings]
        subjects = ["torch:eager"]
        optimizer = "adam"
        [[exclude]]
        model = "resnet18"
        task = "train"
        [[include]]
        model = "mlp"
        batch = [32, 64]
        """,
    )
    assert names(found) == [
        "mlp, forward, batch 1", "mlp, forward, batch 8", "mlp, train, batch 1", "mlp, train, batch 8",
        "resnet18, forward, batch 1", "resnet18, forward, batch 8", "mlp, forward, batch 32", "mlp, forward, batch 64",
    ]  # fmt: skip
    assert {cell.subjects for cell in found} == {("torch:eager",)}
    # Settings of training are those of the cells that train.
    assert [cell.settings.optimizer for cell in found] == [None, None, "adam", "adam", None, None, None, None]


def test_lists_of_subjects_are_an_axis_and_paths_are_beside_the_file(tmp_path):
    (tmp_path / "w.npz").touch()
    text = """
    [matrix]
    model = ["./port"]
    subjects = [["torch:eager"], ["torch:eager", "jittor"]]
    pin = [0, 1]
    [settings]
    weights = "w.npz"
    """
    found = cells(tmp_path, text)
    assert names(found) == ["port, forward, subjects torch:eager", "port, forward, subjects torch:eager+jittor"]
    assert {cell.model for cell in found} == {str(tmp_path / "port")}
    assert {cell.settings.weights for cell in found} == {str(tmp_path / "w.npz")}
    assert {cell.settings.pin for cell in found} == {(0, 1)}


def test_the_command_line_replaces_settings_of_the_file_and_not_its_axes(tmp_path):
    text = '[matrix]\nmodel = ["mlp"]\nbatch = [1]\n[settings]\neffort = "quick"'
    assert cells(tmp_path, text, effort="standard")[0].settings.effort == "standard"
    with pytest.raises(UsageError, match=r"--batch: .*sweep.toml has batch in its \[matrix\]"):
        cells(tmp_path, text, batch=2)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[matrix", "sweep.toml: TOMLDecodeError"),
        ("", "there are no cells"),
        ("[matrix]\nbatch = [1]", "a cell has no model"),
        ("[matrix]\nmodel = []", "model is empty"),
        ('[matrics]\nmodel = ["mlp"]', "unknown table 'matrics'; did you mean 'matrix'?"),
        ('matrix = ["mlp"]', "matrix must be a table"),
        ('include = 3', "include must be a list of tables"),
        ('[matrix]\nmodel = ["mlp"]\nbach = [1]', r"\[matrix\]: unknown setting 'bach'; did you mean 'batch'?"),
        ('[matrix]\nmodel = ["mlp"]\nbatch = ["1"]', "--batch is '1': it must be a whole number"),
        ('[matrix]\nmodel = ["mlp"]\nbatch = [0]', r"sweep.toml, \[matrix\]: --batch is 0: it must be at least 1"),
        ('[matrix]\nmodel = ["mlp"]\n[settings]\nstrict = "yes"', "strict is 'yes': it must be true or false"),
        ('[matrix]\nmodel = ["mlp"]\n[settings]\neffort = 3', "effort is 3: it must be text"),
        ('[matrix]\nmodel = ["mlp"]\n[settings]\nsubjects = "torch"', "subjects is 'torch': write a list"),
        ('[matrix]\nmodel = ["mlp"]\ntask = ["forward,train"]', "a cell has one task"),
        ('[matrix]\nmodel = ["mlp"]\n[settings]\nweights = "absent.npz"', "absent.npz: no such file"),
        ('[matrix]\nmodel = ["mlp"]\nseed = [1]\n[settings]\nseed = 2', r"seed is in \[matrix\] and in \[settings\]"),
        ('[matrix]\nmodel = ["mlp"]\n[[exclude]]\nbatch = 9', r"\[\[exclude\]\] 1 \(batch = \[9\]\) leaves out no cell"),
        ("[matrix]\nmodel = [3]", "model is 3: name a model"),
        ('[matrix]\nmodel = ["mlp"]\nseed = [%s]\nbatch = [%s]' % ((",".join(map(str, range(1, 999))),) * 2), "at most 100000"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_file_is_one_line(tmp_path, text, says):
    with pytest.raises(UsageError, match=says) as caught:
        cells(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_utf8_or_absent(tmp_path):
    (tmp_path / "sweep.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="is not UTF-8"):
        matrix.read(tmp_path / "sweep.toml")
    with pytest.raises(UsageError, match="No such file"):
        matrix.read(tmp_path / "absent.toml")


def test_cells_that_cannot_exist_are_all_named():
    asked = matrix.combined({"model": ["mlp", "absent", "resnet18"], "task": ["forward", "fly"]}, {})
    with pytest.raises(UsageError) as caught:
        checked(asked, plan(asked))
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("4 of the cells cannot run")
    assert [line.split(": ")[0].strip() for line in lines[1:]] == [
        "mlp, fly", "absent, forward", "absent, fly", "resnet18, fly",
    ]  # fmt: skip


def planned(**given):
    asked = matrix.combined({"model": [given.pop("model", "mlp")]}, {"subjects": ("torch:eager",), **given})
    [found] = plan(asked)
    assert isinstance(found, Planned)
    return found


def test_the_key_holds_what_changes_a_result_and_nothing_else(port, tmp_path, monkeypatch):
    same = planned()
    assert planned(timeout=9.0).key == same.key
    assert planned(seed=1).key != same.key
    assert planned(batch=planned().settings.batch).key == same.key
    own = planned(model=str(port), subjects=("numpy",))
    (port / "numpy.py").write_text((port / "numpy.py").read_text() + "\n")
    assert planned(model=str(port), subjects=("numpy",)).key != own.key
    monkeypatch.setattr("xverify.sweep.planning.__version__", "9.9")
    assert planned().key != same.key
