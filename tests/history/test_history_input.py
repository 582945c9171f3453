"""Folders and files that are not as they should be: one clear line each, and the right exit code."""

import json
import os
import re
import sys
from dataclasses import replace

import pytest
from helpers.historyresults import keep, result
from helpers.sampleresults import HOSTILE, RESULT, of_files, unusual

from xverify.commands._main import main
from xverify.errors import UsageError
from xverify.history import reading
from xverify.results.file import write

pytest.importorskip("duckdb")


def ask(capsys, *options):
    """(exit code, output, errors)"""
    code = main(["history", *map(str, options)])
    done = capsys.readouterr()
    assert "Traceback" not in done.err
    return code, done.out, done.err


@pytest.fixture
def folder(tmp_path):
    return keep(tmp_path / "results", result(1), result(2))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--results", "nowhere"), "--results nowhere: No such file or directory"),
        (("--results", "file"), "--results file: Not a directory"),
        (("--results", "a\0b"), "and no NUL"),
        (("--since", "yesterday"), "--since yesterday: write a day or a time, e.g. 2026-11-01"),
        (("--since", "2026-13-01"), "--since 2026-13-01: write a day or a time"),
        (("--since", "0001-01-01T00:00+14:00"), "write a day or a time"),
        (("--format", "xml"), "--format is 'xml'"),
        (("--html", "nowhere/page.html"), "nowhere does not exist"),
        (("--index", "nowhere/index"), "nowhere does not exist"),
        (("--csv", "a", "--index", "a"), "--csv and --index name the same file, a"),
    ],
    ids=str,
)
def test_a_wrong_command_line_is_one_line(options, says, folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    code, out, err = ask(capsys, *options)
    assert (code, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_without_duckdb_one_line_says_how_to_install_it(folder, xverify, tmp_path, monkeypatch):
    (tmp_path / "absent").mkdir()
    (tmp_path / "absent" / "duckdb.py").write_text("raise ModuleNotFoundError('No module named duckdb')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path / "absent"), os.environ.get("PYTHONPATH", "")]))
    done = xverify("history", "--results", folder, process=True)
    assert done.code == 2
    assert done.err == "xverify history: a history needs DuckDB, which is not installed: pip install duckdb\n"


def test_the_default_folder_is_results(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ask(capsys)[0] == 0


@pytest.mark.parametrize("kept", [{}, {"a.json": "{}"}, {".hidden.json": "x"}, {"a.txt": "x"}], ids=str)
def test_a_folder_without_results_is_inconclusive(kept, tmp_path, capsys):
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    code, out, err = ask(capsys, "--results", tmp_path)
    assert code == 4
    assert out == f"INCONCLUSIVE no result of xverify is in the folder {tmp_path}\n"
    assert err == ("note: 1 JSON file is no result of xverify\n" if "a.json" in kept else "")


def test_one_result_is_nothing_to_compare(tmp_path, capsys):
    code, out, _ = ask(capsys, "--results", keep(tmp_path, result(1)))
    assert code == 4
    assert out.endswith("INCONCLUSIVE no series has two results to compare: 2 series of 1 result\n")


@pytest.mark.parametrize(
    "text", ["[]", "3", "null", '"x"', "{}", '{"rows": [], "model": "m"}', '{"model": {"a": 1}}', '[{"rows": 1}]']
)
def test_a_json_file_that_is_no_result_is_counted(text, folder, capsys):
    (folder / "other.json").write_text(text)
    code, _, err = ask(capsys, "--results", folder)
    assert (code, err) == (0, "note: 1 JSON file is no result of xverify\n")


def damaged(change):
    values = result(3, verdict="DIFFERENT").to_dict()
    change(values)
    return json.dumps(values)


VERSION = '"schema_version": '
DAMAGED = {
    "half": (lambda text: text[: len(text) // 2], "it is no JSON file, or only a part of one"),
    "empty": (lambda text: "", "it is no JSON file, or only a part of one"),
    "NaN": (lambda text: re.sub(r'"ratio": [0-9.]+', '"ratio": NaN', text), "it is no JSON file"),
    "deep": (lambda text: text.replace('"host": {', '"host": {"x": ' + "[" * 100_000), "it is no JSON file"),
    "text for a number": (lambda text: text.replace('"batch": 32', '"batch": "many"'), "Expected `int`, got `str`"),
    "another verdict": (lambda text: text.replace('"DIFFERENT"', '"FINE"'), "Invalid enum value 'FINE'"),
    "negative memory": (lambda text: text.replace('"peak_rss_mib": 270.0', '"peak_rss_mib": -1'), "must not be negative"),
    "negative batch": (lambda text: text.replace('"batch": 32', '"batch": -1'), "between 0 and 2**53"),
    "huge batch": (lambda text: text.replace('"batch": 32', f'"batch": {10**18}'), "between 0 and 2**53"),
    "another version": (lambda text: text.replace(f"{VERSION}1", f"{VERSION}7"), "it has schema version 7; this xverify reads 1"),
    "no version": (lambda text: text.replace(f"{VERSION}1", f'{VERSION}"\\u001b[31m"'), "it has schema version"),
    "another version with other fields": (
        lambda text: text.replace(f"{VERSION}1", f"{VERSION}2").replace('"model": "mlp"', '"model": {"name": "mlp"}'),
        "it has schema version 2; this xverify reads 1",
    ),
    "infinity": (lambda text: re.sub(r'"noise_ratio": [0-9.]+', '"noise_ratio": 1e999', text), "Number out of range"),
    "no rows": (lambda text: re.sub(r'"rows": .*?, "created"', '"rows": [], "created"', text), "it has no row"),
    "no text": (lambda text: "\x00\x01", "it is no JSON file"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_result_is_left_out_and_named(name, folder, capsys):
    change, says = DAMAGED[name]
    text = damaged(lambda values: None)
    assert change(text) != text
    (folder / "bad.json").write_text(change(text))
    code, out, err = ask(capsys, "--results", folder)
    assert code == 0
    assert out.endswith("NOT WORSE 2 series of 2 results\n")
    assert err.startswith("note: 1 file cannot be read, and is left out\nnote: bad.json: ")
    assert says in err
    assert len(err.splitlines()) == 2
    assert "\x1b" not in err
    (folder / "bad.json").write_text(text)
    assert ask(capsys, "--results", folder)[0] == 1, "it is whole now"


@pytest.mark.parametrize("field", ["ratio", "noise_ratio", "peak_rss_mib", "fps"])
def test_numbers_that_json_cannot_write_are_unknown(field, folder, capsys):
    text = re.sub(rf'"{field}": [0-9.]+', f'"{field}": null', json.dumps(result(3).to_dict()))
    (folder / "r3.json").write_text(text)
    code, out, err = ask(capsys, "--results", folder)
    assert (code, err) == (0, "")
    assert out.endswith("NOT WORSE 2 series of 3 results\n")


@pytest.mark.parametrize("created", ["", "soon", "9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00+14:00"])
def test_a_result_without_a_time_has_that_of_its_file(created, folder, capsys):
    write(replace(result(verdict="DIFFERENT"), created=created), folder / "r3.json")
    os.utime(folder / "r3.json", (4e9, 4e9))  # in the year 2096
    code, out, _ = ask(capsys, "--results", folder)
    assert code == 1
    assert "2096-10-02" in out


def test_hidden_files_and_folders_and_what_is_no_file_are_not_read(folder, capsys):
    worse = result(3, verdict="DIFFERENT")
    write(worse, folder / ".hidden.json")
    keep(folder / ".git", worse)
    write(worse, folder / "result.json.tmp")
    (folder / "folder.json").mkdir()
    (folder / "nowhere.json").symlink_to("gone.json")
    (folder / "loop").symlink_to(folder)
    (folder / "device.json").symlink_to("/dev/zero")
    if hasattr(os, "mkfifo"):
        os.mkfifo(folder / "pipe.json")
    code, out, err = ask(capsys, "--results", folder)
    assert (code, err) == (0, "")
    assert out.endswith("2 series of 2 results\n")
    (folder / "linked.json").symlink_to(folder / ".hidden.json")
    assert ask(capsys, "--results", folder)[0] == 1


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are bytes on Linux alone")
def test_names_of_files_that_are_no_text(folder, capsys):
    write(result(3, verdict="DIFFERENT"), folder / os.fsdecode(b"\xff\x1b[31m.json"))
    code, out, err = ask(capsys, "--results", folder)
    assert (code, err) == (1, "")
    assert "\\udcff\\x1b[31m.json" in out
    assert ask(capsys, "--results", folder)[0] == 1


def test_a_file_that_vanishes_while_it_is_read_is_left_out(folder, capsys, monkeypatch):
    def read(path, modified):
        if path.endswith("r2.json"):
            os.unlink(path)
        return real(path, modified)

    real = reading.read
    monkeypatch.setattr(reading, "read", read)
    code, out, err = ask(capsys, "--results", folder)
    assert (code, err) == (4, "")
    assert out.endswith("2 series of 1 result\n")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_and_a_folder_that_may_not_be_read_are_told(folder, capsys):
    (folder / "r2.json").chmod(0)
    (folder / "closed").mkdir(mode=0)
    code, _, err = ask(capsys, "--results", folder)
    assert code == 4
    assert "r2.json: it cannot be read: Permission denied" in err
    assert "1 folder cannot be read" in err


@pytest.mark.parametrize("name", sorted({*HOSTILE} - {"surrogate"}))
def test_hostile_names_are_printed_as_text_in_every_format(name, tmp_path, capsys):
    hostile = HOSTILE[name]
    baseline, changed = result(verdict="DIFFERENT").rows
    rows = [replace(baseline, task=f"1{hostile}"), replace(changed, subject=hostile, reason=hostile)]
    before = [rows[0], replace(rows[1], error=replace(changed.error, verdict="EQUAL"))]
    keep(
        tmp_path / "r",
        replace(result(1, model=hostile), rows=tuple(before), xverify=hostile, host=replace(RESULT.host, cpu=hostile)),
        replace(result(2, model=hostile), rows=tuple(rows), host=replace(RESULT.host, cpu=hostile)),
    )
    files = [text for each in ("html", "markdown", "csv") for text in (f"--{each}", str(tmp_path / each))]
    code, out, err = ask(capsys, "--results", tmp_path / "r", *files)
    assert (code, len(err.splitlines())) == (1, 1)
    assert err.startswith("wrote ")
    assert out.replace("\n", "").isprintable()
    assert max(map(len, out.splitlines())) < 2500
    assert "<script>" not in (tmp_path / "html").read_text()
    assert "\x1b" not in "".join((tmp_path / each).read_text() for each in ("html", "markdown", "csv"))
    assert json.loads(run_json(tmp_path / "r", capsys))["series"][0]["model"] == hostile


def run_json(folder, capsys):
    return ask(capsys, "--results", folder, "--format", "json")[1]


def test_results_with_little_or_no_numbers_are_read(tmp_path, capsys):
    made = [each for name, each in unusual().items() if not name.startswith("no rows")]
    code, _, err = ask(capsys, "--results", keep(tmp_path, *made, of_files(), RESULT))
    assert code == 4
    assert err == ""


def test_the_partial_reader_reads_what_the_whole_one_does(tmp_path):
    """It skips most of a file; what it takes is what the records hold."""
    from xverify.results.file import read

    for number, made in enumerate([RESULT, of_files(), result(), *unusual().values()]):
        file = tmp_path / f"{number}.json"
        write(made, file)
        if not made.rows:
            with pytest.raises(reading.Unreadable, match="it has no row"):
                reading.read(file, 0)
            continue
        try:
            whole = read(file)
        except UsageError:  # of what it skips, the partial reader cannot tell
            continue
        part = reading.read(file, 0)
        assert (part.model, part.verdict, part.xverify, part.complete) == (
            whole.model, whole.verdict, whole.xverify, whole.complete,
        )  # fmt: skip
        for row, found in zip(whole.rows, part.measurements, strict=True):
            assert (found.key.subject, found.key.task, found.key.batch) == (row.subject, row.task, row.batch)
            assert found.verdict == (row.error.verdict if row.error else None)
            assert found.status == row.status
