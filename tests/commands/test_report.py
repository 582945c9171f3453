"""The outputs of xverify run, check and report, as a user asks for them."""

import json
import webbrowser
from pathlib import Path
from urllib.parse import unquote, urlparse

import junitparser
import pandas
import pytest
from conftest import write_folder
from helpers.sampleresults import RESULT, of_files

from xverify.commands._main import main
from xverify.results.file import read, write

pytestmark = pytest.mark.usefixtures("in_one_process")

FILES = ("html", "markdown", "junit", "csv")


@pytest.fixture
def written(tmp_path):
    write(RESULT, tmp_path / "r.json")
    return tmp_path / "r.json"


def options(folder, names=FILES):
    return [text for name in names for text in (f"--{name}", str(folder / f"out.{name}"))]


def test_a_run_writes_every_output(xverify, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    (tmp_path / "summary.md").write_text("# Before\n")
    folder = write_folder(tmp_path / "port", ("numpy", "breaks"))
    wanted = [name for name in FILES if name != "markdown"]
    subjects = ("--subjects", "numpy,breaks", "--warmup", "1", "--rerun", "4")
    done = xverify("run", folder, *subjects, *options(tmp_path, wanted), "--json", tmp_path / "result.json")
    assert done.code == 3
    assert "ERROR port" in done.out
    summary = (tmp_path / "summary.md").read_text()
    assert summary.startswith("# Before\n## ERROR: port, forward\n")
    assert "<h1" in (tmp_path / "out.html").read_text()
    [suite] = junitparser.JUnitXml.fromfile(str(tmp_path / "out.junit"))
    assert [(case.name, bool(case.result)) for case in suite] == [("numpy", False), ("breaks", True)]
    assert list(pandas.read_csv(tmp_path / "out.csv")["status"]) == ["ok", "crashed"]


@pytest.mark.parametrize(("format", "begins"), [("json", "{"), ("markdown", "## FAIL: mlp"), ("csv", "model,created,")])
def test_report_prints_the_format_alone(format, begins, written, capsys):
    assert main(["report", str(written), "--format", format]) == 1
    out = capsys.readouterr().out
    assert out.startswith(begins)
    if format == "json":
        assert json.loads(out) == RESULT.to_dict()


def test_report_writes_files_and_ends_with_the_worst_exit_code(written, tmp_path, capsys):
    write(of_files(), tmp_path / "files.json")
    assert main(["report", str(tmp_path / "files.json"), str(written), *options(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith(f"FAIL: 2 results; wrote {tmp_path / 'out.html'}, ")
    assert said.err.count("\n") == 1
    assert len(list(junitparser.JUnitXml.fromfile(str(tmp_path / "out.junit")))) == 2
    assert (tmp_path / "out.markdown").read_text().startswith("# FAIL: 2 results")
    assert list(pandas.read_csv(tmp_path / "out.csv")["model"]) == ["model.onnx"] * 2 + ["mlp"] * 3


def test_report_without_an_output_prints_the_report_again(written, capsys):
    assert main(["report", str(written)]) == 1
    assert "FAIL mlp: 0 of 3 subjects EQUAL" in capsys.readouterr().out


def test_report_does_not_append_to_the_summary_of_a_workflow(written, tmp_path, monkeypatch):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    main(["report", str(written)])
    assert not (tmp_path / "summary.md").exists()


def test_outputs_that_cannot_be_written_are_refused_before_the_work(written, tmp_path, capsys):
    same = str(tmp_path / "same")
    for arguments, says in (
        (["--csv", str(tmp_path / "none" / "x.csv")], "does not exist"),
        (["--csv", same, "--junit", same], "name the same file"),
        (["--format", "xml"], "--format is 'xml'"),
    ):
        for command in (["report", str(written)], ["run", "mlp"], ["diff", str(written), str(written)]):
            assert main([*command, *arguments]) == 2
            assert says in capsys.readouterr().err


def test_a_summary_that_cannot_be_written_changes_no_exit_code(xverify, port, monkeypatch, tmp_path):
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "none" / "summary.md"))
    done = xverify("run", port, "--subjects", "numpy", "--warmup", "1", "--rerun", "4", "--format", "csv")
    assert done.code == 4  # the reference alone
    assert "GITHUB_STEP_SUMMARY: " in done.err
    assert done.out.startswith("model,created,")
    assert read(tmp_path / "result.json").rows[0].subject == "numpy"


@pytest.fixture
def browser(monkeypatch):
    """What was opened in a browser."""
    opened = []
    monkeypatch.setattr("webbrowser.get", lambda: None)
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) or True)
    return opened


def test_open_shows_the_page_in_a_browser(xverify, written, tmp_path, browser):
    done = xverify("report", written, "--open")
    [address] = browser
    page = Path(unquote(urlparse(address).path))
    assert done.code == 1
    assert done.err.endswith(f"; wrote {page}\n")
    assert "<h1" in page.read_text()
    xverify("report", written, "--open", "--html", tmp_path / "own page.html")
    assert browser[1].endswith("own%20page.html")


def test_open_without_a_browser_says_so_and_writes_nothing(xverify, written, tmp_path, monkeypatch):
    def get():
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr("webbrowser.get", get)
    done = xverify("report", written, "--open", "--html", tmp_path / "page.html")
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert "--open: there is no browser" in done.err
    assert not (tmp_path / "page.html").exists()


def test_a_browser_that_does_not_open_costs_no_page(xverify, written, tmp_path, browser, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: False)
    done = xverify("report", written, "--open", "--html", tmp_path / "page.html")
    assert done.code == 1
    assert "the browser did not open" in done.err
    assert (tmp_path / "page.html").exists()


def test_a_command_says_which_files_it_wrote(xverify, written, tmp_path):
    done = xverify("report", written, *options(tmp_path))
    files = ", ".join(str(tmp_path / f"out.{name}") for name in FILES)
    assert done.err == f"FAIL: 0 of 3 subjects EQUAL, 1 DIFFERENT, 1 DRIFT, 1 not-installed; wrote {files}\n"
    assert xverify("report", written).err == ""
