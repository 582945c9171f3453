"""Outputs replace what xverify wrote, and a file of the user with --force alone."""

import itertools
import json
import os
import tempfile
from dataclasses import asdict

import numpy as np
import pytest
from helpers.outputplaces import ALONE, DEFAULTS, FAST, REPORTS, Place, commands, contents, refused, write_all
from helpers.sampleresults import RESULT

from xverify import check, convert, outputs, run
from xverify.errors import UsageError
from xverify.report import curves
from xverify.results.records import plain
from xverify.weights import save_file

pytestmark = pytest.mark.usefixtures("in_one_process", "faulty_frameworks")


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


# -- what is written ---------------------------------------------------------------------------------------------------


def everything(*folders):
    return {path for folder in folders for path in folder.rglob("*")}


@pytest.mark.parametrize(
    "name", ["run", "report", "diff", "weights digest", "weights convert", "explain", "check", "list"]
)
def test_a_command_writes_what_its_options_name(name, place, xverify, tmp_path_factory, monkeypatch):
    """Beside them it leaves nothing: where it is called, in the home of the user, and in the folder of temporary files."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for variable in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        (elsewhere / variable).mkdir()
        monkeypatch.setenv(variable, str(elsewhere / variable))
    monkeypatch.setattr(tempfile, "tempdir", None)
    others = {
        "weights digest": (["weights", "digest", place.weights], ()),
        "weights convert": (["weights", "convert", place.weights, place.folder / "made.npz"], ()),
        "explain": (["explain", place.r], ()),
        "check": (["check", place.port / "spec.py"], ()),  # which is refused
        "list": (["list"], ()),
    }
    command, options = others.get(name) or commands(place)[name][:2]
    command = {"run": ["run", place.port, *FAST], "diff": [*command, "--anyway"]}.get(name, command)
    (place.folder / "here").mkdir()
    before = everything(place.folder, elsewhere)
    files = [(f"--{option}", place.folder / f"out{DEFAULTS[option]}") for option in options]
    done = xverify(*command, *itertools.chain.from_iterable(files))
    assert done.code in (0, 1, 2, 4), done.err
    state = elsewhere / "XDG_STATE_HOME"
    left = {each for each in everything(place.folder, elsewhere) - before if state not in each.parents}
    assert left == {file for _, file in files} | ({place.folder / "made.npz"} if name == "weights convert" else set())


# -- files of the user ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "check", "report", "diff", "mutate", "reproduce", "convert"])
def test_a_file_of_the_user_is_replaced_with_force_alone(name, place, xverify):
    command, options, _ = commands(place)[name]
    assert options
    for option in options:
        mine = place.folder / f"mine{DEFAULTS[option]}"
        mine.write_text('{"notes": "mine"}')
        error = refused(xverify, *command, f"--{option}", mine)
        assert f"--{option} {mine} exists, and is no {outputs.KINDS[option][0]} that xverify wrote" in error
        assert error.endswith("; --force replaces it\n")
        assert mine.read_text() == '{"notes": "mine"}'


@pytest.mark.slow
def test_an_exported_model_takes_other_weights_without_force_and_another_graph_with_force_alone(place, xverify):
    pytest.importorskip("onnx")
    other = place.folder / "other.npz"
    save_file({"w": np.full(2, 3, np.float32)}, other)
    assert xverify("weights", "diff", other, place.m).code == 1
    assert xverify("weights", "convert", other, place.m).code == 0
    assert xverify("weights", "diff", other, place.m).code == 0
    before = place.m.read_bytes()
    error = refused(xverify, "weights", "convert", other, place.m, "--model", place.port)
    assert f"TARGET {place.m} exists, and is no file that xverify wrote; --force replaces it" in error
    assert place.m.read_bytes() == before


def test_a_sweep_replaces_no_file_of_the_user(place, xverify):
    page = place.folder / "page.html"
    page.write_text("mine")
    sweep = ["sweep", place.toml, "--results", place.folder / "cells"]
    assert "remove it, or name another file" in refused(xverify, *sweep, "--html", page, "--force")
    assert page.read_text() == "mine"


def test_a_cell_of_a_sweep_replaces_no_file_of_the_user(place, xverify):
    cells = place.folder / "cells"
    sweep = ["sweep", place.port, "--results", cells, "--subjects", "numpy", "--no-timing", "--quiet"]
    assert xverify(*sweep).code == ALONE
    [cell] = cells.glob("*.json")
    mine = place.folder / "notes.txt"
    mine.write_text("mine")
    cell.unlink()
    cell.symlink_to(mine)
    assert "the result of port, forward, " in refused(xverify, *sweep)
    assert mine.read_text() == "mine"
    cell.unlink()
    assert xverify(*sweep).code == ALONE
    before = cell.read_bytes()
    for option in REPORTS:
        refused(xverify, *sweep, f"--{option}", cell)
    assert cell.read_bytes() == before
    cell.unlink()
    for option in REPORTS:
        assert "name the same file" in refused(xverify, *sweep, f"--{option}", cell)


def test_locks_and_indices_that_lead_to_files_of_the_user_are_refused(place, xverify):
    mine = place.folder / "notes.txt"
    mine.write_text("mine")
    cells = place.folder / "cells"
    cells.mkdir()
    sweep = ["sweep", place.port, "--results", cells, "--subjects", "numpy", "--no-timing", "--quiet"]
    lock = cells / ".xverify-sweep.lock"
    lock.symlink_to(mine)
    assert f"{lock} is no lock of xverify sweep, but a link, a device or a folder: remove it" in refused(
        xverify, *sweep
    )
    lock.unlink()
    os.link(mine, lock)
    assert f"{lock} is no lock of xverify sweep, which holds a number alone: remove it" in refused(xverify, *sweep)
    assert mine.read_text() == "mine"
    lock.unlink()
    os.mkfifo(lock)
    assert f"{lock} is no lock of xverify sweep" in refused(xverify, *sweep)
    lock.unlink()
    assert xverify(*sweep).code == ALONE
    assert xverify(*sweep).code == ALONE


@pytest.mark.parametrize("content", ["text", "database"])
def test_an_index_that_is_a_link_is_refused(content, place, xverify):
    duckdb = pytest.importorskip("duckdb")
    mine = place.folder / "mine.duckdb"
    if content == "text":
        mine.write_text("mine")
    else:
        with duckdb.connect(str(mine)) as other:
            other.execute("CREATE TABLE mine (a INT)")
    before = mine.read_bytes()
    index = place.results / ".xverify-history.duckdb"
    index.symlink_to(mine)
    assert f"{index} is a link" in refused(xverify, "history", "--results", place.results)
    assert mine.read_bytes() == before
    index.unlink()
    history = ["history", "--results", place.results, "--quiet"]
    assert xverify(*history).code == 0
    assert "--html and the index name the same file" in refused(xverify, *history, "--html", index, "--force")
    assert "is no index of xverify history" in refused(xverify, *history, "--index", place.weights, "--force")


# -- what xverify wrote -----------------------------------------------------------------------------------------------


def test_what_xverify_wrote_is_replaced_without_a_word(place, xverify, monkeypatch):
    run_it = ["run", place.port, *FAST]
    for command, options in (
        (run_it, ("json", *REPORTS)),
        (["report", place.r, place.results / "r1.json"], REPORTS),
        (["diff", place.results / "r1.json", place.results / "r2.json", "--anyway"], REPORTS[1:]),
        (["sweep", place.port, "--results", place.folder / "cells", *FAST], REPORTS),
    ):
        for _ in range(2):
            files = write_all(xverify, command, options, place.folder)
        assert set(files) == set(options)
        for option, file in files.items():
            assert outputs.Output("", file, option).is_own
            assert not any(outputs.Output("", file, other).is_own for other in outputs.KINDS if other != option)
            file.unlink()


def test_what_other_commands_write_is_known_again(tmp_path):
    from xverify.mutation.records import Score
    from xverify.reproduce import files
    from xverify.reproduce.published import EXPERIMENTS
    from xverify.reproduce.records import Reproduction
    from xverify.selftest.check import Check
    from xverify.training.optimizer_probe import PROBED, Probed

    done = Reproduction(EXPERIMENTS["mlp-mnist"], 0.01, 1, "synthetic", "2026-11-22T10:25:51+00:00")
    for kind, text in (
        ("json", files.as_json(done)),
        ("markdown", files.markdown(done)),
        ("html", files.page(done)),
        ("json", json.dumps([Score("m", (), 1, ()).to_dict()], indent=1)),
        ("json", json.dumps(plain([asdict(Probed("torch", PROBED[0], False, "EQUAL", 0.5))]), indent=1)),
        ("json", json.dumps([asdict(Check("a", "b", "c", True))], indent=1)),
        ("json", json.dumps([RESULT.to_dict()] * 2, indent=1)),
        ("json", "[]\n"),
    ):
        outputs.write(kind, text, tmp_path / "out")
        assert outputs.Output("", tmp_path / "out", kind).is_own, text
    for suffix in (".png", ".svg"):
        curves.draw(RESULT, tmp_path / f"out{suffix}")
        assert outputs.Output("", tmp_path / f"out{suffix}", "curve").is_own


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("json", "{}"),
        ("json", '{"model": "m", "notes": "mine"}'),
        ("json", '{"receipt_version": 1, "xverify": "0.1.0", "created": ""}'),
        ("json", '[{"name": "x"}]'),
        ("html", "<!doctype html><html><title>xverify: mine</title></html>"),
        ("markdown", "## PASS: mine, forward\n"),
        ("markdown", f"# Mine\n{outputs.MARK}\nand more\n"),
        ("junit", '<?xml version="1.0"?>\n<testsuites name="pytest tests"/>'),
        ("csv", "model,subject,mine\n"),
        ("curve", "<?xml version='1.0'?><svg/>"),
    ],
)
def test_what_only_looks_like_it_is_not_taken_for_xverifys_own(kind, text, tmp_path):
    (tmp_path / "mine").write_text(text)
    assert not outputs.Output("", tmp_path / "mine", kind).is_own


def test_a_report_does_not_take_the_place_of_an_older_result(place, xverify):
    before = (place.results / "r1.json").read_bytes()
    error = refused(xverify, "report", place.r, "--html", place.results / "r1.json")
    assert "is no page that xverify wrote" in error
    assert (place.results / "r1.json").read_bytes() == before


def test_a_history_replaces_its_own_files(place, xverify):
    pytest.importorskip("duckdb")
    for _ in range(2):
        write_all(xverify, ["history", "--results", place.results], ("html", "markdown", "csv"), place.folder)
        write_all(xverify, ["history", "--results", place.results, "--sql", "SELECT 1"], ("markdown",), place.folder)
    query = ["history", "--results", place.results, "--sql", "SELECT 1", "--csv", place.folder / "query.csv"]
    assert xverify(*query).code == 0
    assert "is no table that xverify wrote" in refused(xverify, *query)
    assert xverify(*query, "--force").code == 0


def test_a_result_in_a_model_folder_is_replaced_and_nothing_else_there_is(place, xverify):
    for _ in range(2):
        assert xverify("run", place.port, *FAST, "--json", place.port / "r.json").code == ALONE
    (place.port / "empty.py").write_text("")
    for mine in ("helper/table.json", "empty.py", "spec.py"):
        refused(xverify, "run", place.port, *FAST, "--json", place.port / mine, "--force")
    assert (place.port / "helper" / "table.json").read_text() == "[1, 2]"


def test_empty_files_and_devices_are_written(place, xverify):
    (place.folder / "empty.json").touch()
    assert xverify("run", place.port, *FAST, "--json", place.folder / "empty.json").code == ALONE
    assert json.loads((place.folder / "empty.json").read_text())["verdict"] == "INCONCLUSIVE"
    assert xverify("run", place.port, *FAST, "--json", "/dev/null", "--html", "/dev/null").code == ALONE


def test_the_summary_of_a_workflow_is_never_what_is_read(place, xverify, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place.port / "spec.py"))
    before = contents(place.folder)
    assert "GITHUB_STEP_SUMMARY" in refused(xverify, "run", place.port, *FAST, "--html", place.folder / "x.html")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place.r))
    assert "GITHUB_STEP_SUMMARY" in refused(xverify, "diff", place.r, place.r)
    assert contents(place.folder) == before


# -- Python -----------------------------------------------------------------------------------------------------------


def test_python_is_held_to_the_same(place):
    mine = place.folder / "mine.json"
    mine.write_text("mine")
    before = contents(place.folder)
    settings = {"subjects": ["numpy"], "no_timing": True}
    for call in (
        lambda file: run(place.port, json=file, **settings),
        lambda file: check(place.m, json=file),
        lambda file: convert(place.port, place.folder / "new.onnx", json=file),
    ):
        with pytest.raises(UsageError, match="exists, and is no result file that xverify wrote; --force replaces it"):
            call(mine)
    for call in (
        lambda: run(place.port, json=place.port / "spec.py", force=True, **settings),
        lambda: check(place.m, json=place.m, force=True),
        lambda: convert(place.port, place.folder / "new.onnx", json=place.port / "numpy.py", force=True),
    ):
        with pytest.raises(UsageError, match="this command reads"):
            call()
    (place.folder / "kept").mkdir()
    with pytest.raises(UsageError, match="is in the folder of --receipt"):
        run(place.port, json=place.folder / "kept" / "r.json", receipt=place.folder / "kept", **settings)
    assert contents(place.folder) == before
    assert run(place.port, json=mine, force=True, **settings).verdict == "INCONCLUSIVE"  # the reference alone
    assert json.loads(mine.read_text())["verdict"] == "INCONCLUSIVE"


def test_reports_of_pytest_replace_no_file_of_the_user(tested, tmp_path):
    place = tmp_path / "repository"
    (place / "README.md").write_text("# Mine\n")
    done = tested("def test():\n    pass\n", "--xverify-report=README.md")
    assert (done.code, (place / "README.md").read_text()) == (4, "# Mine\n")
    assert "exists, and is no Markdown report that xverify wrote; remove it, or name another file" in done.out
    for _ in range(2):
        assert tested("def test():\n    pass\n", "--xverify-report=out.md", "--xverify-report=out.json").code == 0


def test_the_summary_of_a_workflow_is_not_the_lock_of_a_sweep(place, xverify, monkeypatch):
    cells = place.folder / "cells"
    sweep = ["sweep", place.port, "--results", cells, "--subjects", "numpy", "--no-timing", "--quiet"]
    assert xverify(*sweep).code == ALONE
    (place.folder / "summary.md").symlink_to(cells / ".xverify-sweep.lock")
    for name in ("cells/.xverify-sweep.lock", "summary.md"):
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(place.folder / name))
        error = refused(xverify, *sweep)
        assert "GITHUB_STEP_SUMMARY and the lock name the same file" in error
    monkeypatch.delenv("GITHUB_STEP_SUMMARY")
    assert xverify(*sweep).code == ALONE
