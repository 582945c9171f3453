"""A record is believed only where it fits: a result by its rows, and the result of a cell by its model, settings and digests."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import write_folder
from helpers.sampleresults import FORWARD, RESULT, TRAINED, of_files

from xverify.errors import UsageError
from xverify.results.file import decoded, read
from xverify.results.records import Row
from xverify.results.verdicts import Outcome


def written(path, result):
    path.write_text(json.dumps(result.to_dict()))
    return path


# -- the verdict of a result ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["report", "explain", "diff"])
@pytest.mark.parametrize("verdict", [each for each in Outcome if each != Outcome.FAIL])
def test_a_verdict_that_does_not_follow_from_the_rows_is_refused(xverify, tmp_path, command, verdict):
    edited = written(tmp_path / "edited.json", replace(RESULT, verdict=verdict))
    done = xverify(command, edited, *([written(tmp_path / "good.json", RESULT)] if command == "diff" else []))
    assert (done.code, done.out) == (2, "")
    assert f"the verdict is {verdict}, and that of its rows is FAIL" in done.err
    assert len(done.err.splitlines()) == 1
    assert "edited.json" in done.err


@pytest.mark.parametrize("verdict", Outcome)
@pytest.mark.parametrize(
    ("rows", "strict", "follows"),
    [
        ((TRAINED,), False, "PASS"),
        ((TRAINED,), True, "FAIL"),
        ((TRAINED, RESULT.rows[2]), False, "ERROR"),
        ((replace(TRAINED, error=None, training=None),), False, "INCONCLUSIVE"),
    ],
)
def test_a_result_has_the_verdict_of_its_rows_alone(rows, strict, follows, verdict):
    settings = replace(RESULT.settings, strict=strict)
    values = replace(RESULT, rows=rows, settings=settings, verdict=verdict).to_dict()
    if verdict == follows:
        assert decoded(values, "it").verdict == verdict
    else:
        with pytest.raises(UsageError, match=f"the verdict is {verdict}, and that of its rows is {follows}"):
            decoded(values, "it")


@pytest.mark.parametrize(
    ("note", "changes", "good"),
    [
        ("--accept decides: top1>=0.9 holds: 0.95 (y)", {}, True),
        ("--accept decides: top1>=0.99 does not hold: 0.95 (y)", {}, False),
        ("--accept decides: max_abs<=1 does not hold: 2 (y)", {"error": TRAINED.error}, False),
        ("accepted", {}, False),
        ("--accept decides: top1>=0.9 holds: 0.95 (y)", {"status": "crashed"}, False),
        ("--accept decides: top1>=0.9 holds: 0.95 (y)", {"error": replace(FORWARD.error, verdict="INVALID")}, False),
    ],
)
def test_a_check_passes_where_its_conditions_hold(note, changes, good):
    files = of_files()
    rows = (files.rows[0], replace(files.rows[1], notes=(note,), **changes))
    values = replace(files, rows=rows, verdict="PASS").to_dict()
    if good:
        assert decoded(values, "it").exit_code == 0
    else:
        with pytest.raises(UsageError, match="the verdict is PASS"):
            decoded(values, "it")
    assert decoded(values | {"verdict": "FAIL"}, "it").exit_code == 1


# -- the results of a sweep -------------------------------------------------------------------------------------------


@pytest.fixture
def swept(xverify, tmp_path, in_one_process):
    """Sweep a port of numpy's model, and return the outcome."""
    write_folder(tmp_path / "port", ("numpy", "honest", "swapped"))

    def sweep(*more, folder="port", subjects="numpy,honest"):
        return xverify("sweep", tmp_path / folder, "--subjects", subjects, "--no-timing", "--cases", "1", *more)

    return sweep


def cell(tmp_path) -> Path:
    [path] = (tmp_path / "here" / "results").glob("*.json")
    return path


def test_the_result_of_another_model_is_not_taken_for_a_cell(swept, tmp_path):
    assert swept().code == 0
    path = cell(tmp_path)
    good = path.read_text()
    assert "nothing was run" in swept().out
    other = write_folder(tmp_path / "other", ("numpy", "honest"))
    path.unlink()
    assert swept(folder=other.name).code == 0
    cell(tmp_path).rename(path)
    listed = swept("--dry-run")
    assert "of which 1 would run" in listed.out
    assert "model is 'other', and here 'port'" in " ".join(listed.out.split())
    done = swept()
    assert "1 run now" in done.out
    assert f"port, forward is run again: results/{path.name} is the result of another run: " in done.err
    assert read(path).model == json.loads(good)["model"] == "port"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda values: values["settings"].update(seed=7), "seed is 7, and here 0"),
        (lambda values: values["settings"].update(folder_digest="sha256:0"), "folder digest is 'sha256:0'"),
        (lambda values: values["settings"].update(weights_digest="sha256:0"), "weights digest is 'sha256:0'"),
        (lambda values: values.update(xverify="0.0"), "xverify is '0.0'"),
        (lambda values: values["rows"].pop(), "rows is ('numpy',)"),
        (lambda values: values.update(verdict="FAIL"), "the verdict is FAIL, and that of its rows is PASS"),
    ],
)
def test_a_result_that_does_not_fit_is_told_and_run_again(swept, tmp_path, change, says):
    assert swept().code == 0
    path = cell(tmp_path)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))
    done = swept()
    assert says in done.err
    assert "1 run now" in done.out
    assert "nothing was run" in swept().out


@pytest.mark.parametrize("content", ['{"schema_version": 1, "complete": true}', "", "{}", "[]"])
def test_a_cell_without_content_is_run_again(swept, tmp_path, content):
    assert swept().code == 0
    path = cell(tmp_path)
    path.write_text(content)
    done = swept()
    assert (done.code, "1 run now" in done.out) == (0, True)
    assert "port, forward is run again: " in done.err
    assert isinstance(read(path).rows[0], Row)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('subjects = [""]', "[settings]: subjects is ['']: write a list"),
        ('subjects = ["numpy", ""]', "[settings]: subjects is ['numpy', '']: write a list"),
        ('subjects = ["numpy", " "]', "--subjects numpy, : a name is empty; leave a comma out"),
        (
            'subjects = ["numpy"]\npython = { numpy = 3 }',
            "[settings]: python is {'numpy': 3}: it must be a table of texts",
        ),
    ],
)
def test_an_empty_subject_and_an_interpreter_that_is_no_path_are_refused(xverify, tmp_path, settings, says):
    folder = write_folder(tmp_path / "port")
    (tmp_path / "s.toml").write_text(f'[matrix]\nmodel = ["{folder}"]\n[settings]\n{settings}\n')
    done = xverify("sweep", tmp_path / "s.toml", "--dry-run")
    assert done.code == 2
    assert says in done.err


@pytest.mark.parametrize("command", ["run", "sweep"])
def test_an_empty_subject_of_the_command_line_is_refused(xverify, tmp_path, command):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    done = xverify(command, folder, "--subjects", "numpy,,honest")
    assert done.code == 2
    assert "--subjects numpy,,honest: a name is empty; leave a comma out" in done.err
    assert not (tmp_path / "here" / "results").exists() or not list((tmp_path / "here" / "results").glob("*.json"))


# -- the report of a test run -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("test", ["", "def test_nothing():\n    pass\n"])
def test_a_test_run_without_results_keeps_the_report_that_is_there(tested, tmp_path, test):
    report = tmp_path / "repository" / "out.json"
    written(report, RESULT)
    before = report.read_text()
    done = tested(test, "--xverify-report=out.json")
    assert report.read_text() == before
    assert f"no test had a result, so {report} stays as it is" in done.out


# -- names and fields of a record -------------------------------------------------------------------------------------


def test_a_cell_without_a_setting_has_the_default_of_it(swept, tmp_path):
    assert swept().code == 0
    path = cell(tmp_path)
    values = json.loads(path.read_text())
    seed = values["settings"].pop("seed")
    path.write_text(json.dumps(values))
    assert seed == 0
    assert "nothing was run" in swept().out


@pytest.mark.parametrize("name", ["model", "max_abs", "calls"])
def test_a_history_leaves_out_a_result_in_which_a_name_stands_twice(xverify, tmp_path, name):
    pytest.importorskip("duckdb")
    text = written(tmp_path / "r.json", RESULT).read_text()
    assert f'"{name}": ' in text
    (tmp_path / "r.json").write_text(text.replace(f'"{name}": ', f'"{name}": null, "{name}": ', 1))
    done = xverify("history", "--results", tmp_path)
    assert done.code == 4
    assert f"r.json: an object in it has '{name}' twice" in done.err
