"""The index: it follows the files, survives damage and other processes, and is never half of one."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import FAULTY, small_disk
from helpers.historyresults import keep, result

from xverify.commands._main import main
from xverify.history import reading, update
from xverify.history.index import NAME

duckdb = pytest.importorskip("duckdb")
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path):
    return keep(tmp_path / "results", result(1), result(2))


@pytest.fixture
def reads(monkeypatch):
    """The names of the files that are read."""
    seen = []

    def read(path, modified):
        seen.append(Path(path).name)
        return real(path, modified)

    real = reading.read
    monkeypatch.setattr(reading, "read", read)
    return seen


def ask(folder, capsys, *options):
    """(exit code, the history as JSON, standard error)"""
    code = main(["history", "--results", str(folder), "--format", "json", *options])
    done = capsys.readouterr()
    return code, json.loads(done.out) if done.out else None, done.err


def changes(history):
    return [change["measure"] for series in history["series"] for change in series["changes"]]


def test_only_new_and_changed_files_are_read(folder, reads, capsys):
    ask(folder, capsys)
    assert sorted(reads) == ["r1.json", "r2.json"]
    ask(folder, capsys)
    assert len(reads) == 2
    keep(folder / "sub", result(3, verdict="DIFFERENT"))
    assert ask(folder, capsys)[0] == 1
    assert reads[2:] == ["r1.json"]
    keep(folder, result(1, ratio=1.10), result(2, memory=900.0))
    os.utime(folder / "r1.json", (1, 1))
    assert changes(ask(folder, capsys)[1]) == ["verdict", "peak memory", "peak memory"]
    assert sorted(reads[3:]) == ["r1.json", "r2.json"]


def test_what_is_removed_is_forgotten(folder, capsys):
    keep(folder / "sub", result(3, verdict="DIFFERENT"))
    assert ask(folder, capsys)[0] == 1
    (folder / "sub" / "r1.json").unlink()
    code, history, _ = ask(folder, capsys)
    assert (code, changes(history), history["results"]) == (0, [], 2)
    (folder / "r2.json").unlink()
    assert ask(folder, capsys)[0] == 4


def test_of_two_copies_the_one_that_stays_counts(folder, capsys):
    keep(folder / "copy", result(1), result(2))
    _, history, _ = ask(folder, capsys, "--all")
    assert {series["results"] for series in history["series"]} == {2}
    for file in folder.glob("*.json"):
        file.unlink()
    _, history, _ = ask(folder, capsys, "--all")
    assert {series["results"] for series in history["series"]} == {2}


def test_an_answer_of_an_old_index_is_that_of_a_new_one(folder, capsys):
    for day in range(3, 9):
        keep(folder / f"day{day}", result(day, ratio=1.1 + day % 3, memory=270.0 + 40 * (day % 2), rho=day / 2))
        followed = ask(folder, capsys, "--all")
    (folder / NAME).unlink()
    assert ask(folder, capsys, "--all") == followed
    assert len(changes(followed[1])) > 9


def test_an_index_of_another_version_is_made_again(folder, reads, capsys, monkeypatch):
    ask(folder, capsys)
    monkeypatch.setitem(update.ABOUT, "version", "another")
    code, history, err = ask(folder, capsys)
    assert (code, history["results"], len(reads), err) == (0, 2, 4, "")


@pytest.mark.parametrize("damage", ["empty", "text", "half", "zeros in the middle", "another database"])
def test_a_damaged_index_is_made_again(damage, folder, capsys):
    expected = ask(folder, capsys)
    index = folder / NAME
    content = bytearray(index.read_bytes())
    if damage == "empty":
        content = b""
    elif damage == "text":
        content = b"no database at all" * 1000
    elif damage == "half":
        content = content[: len(content) // 2]
    elif damage == "zeros in the middle":
        content[4096 : 3 * len(content) // 4] = bytes(3 * len(content) // 4 - 4096)
    index.write_bytes(content)
    if damage == "another database":
        index.unlink()
        with duckdb.connect(str(index)) as other:
            other.execute("CREATE TABLE mine (a INT)")
    code, history, err = ask(folder, capsys)
    assert (code, history) == expected[:2]
    assert err in ("", "note: the index was damaged, and has been made again\n")
    assert ask(folder, capsys) == expected


@pytest.mark.parametrize("seed", range(8))
def test_a_damage_that_is_found_late_is_repaired_too(seed, folder, capsys):
    """DuckDB checks a block when it reads it, which may be after the index was found to be up to date."""
    expected = ask(folder, capsys, "--html", str(folder / "page.html"))
    index = folder / NAME
    drawn = random.Random(seed)
    content = bytearray(index.read_bytes())
    start = drawn.randrange(12288, len(content))
    content[start : start + 4096] = drawn.randbytes(len(content[start : start + 4096]))
    index.write_bytes(content)
    if seed % 2:  # and what is new must be added
        keep(folder / "sub", result(3))
        expected = (expected[0], {**expected[1], "results": 3})
    code, history, _ = ask(folder, capsys, "--html", str(folder / "page.html"))
    assert (code, history) == expected[:2]
    assert ask(folder, capsys) == (*expected[:2], "")


def test_a_question_in_sql_to_a_damaged_index_is_answered(folder, capsys):
    ask(folder, capsys)
    index = folder / NAME
    content = index.read_bytes()
    index.write_bytes(content[: len(content) - 8192])
    assert (
        main(["history", "--results", str(folder), "--sql", "SELECT count(*) FROM measurements", "--format", "csv"])
        == 0
    )
    assert capsys.readouterr().out.splitlines()[1:] == ["4"]


def test_an_index_can_be_kept_elsewhere_and_for_one_folder_at_a_time(folder, reads, tmp_path, capsys):
    index = tmp_path / "elsewhere.duckdb"
    ask(folder, capsys, "--index", str(index))
    assert index.exists()
    assert not (folder / NAME).exists()
    ask(folder, capsys, "--index", str(index))
    assert len(reads) == 2
    other = keep(tmp_path / "other", result(1), result(2, verdict="DIFFERENT"))
    for number in (1, 2):
        os.utime(other / f"r{number}.json", ns=((folder / f"r{number}.json").stat().st_mtime_ns,) * 2)
    assert ask(other, capsys, "--index", str(index))[0] == 1


def test_a_folder_that_is_moved_keeps_its_index(folder, reads, capsys):
    ask(folder, capsys)
    ask(folder.rename(folder.with_name("moved")), capsys)
    assert len(reads) == 2


@pytest.mark.parametrize("content", [b"my own notes", b"x"])
def test_a_file_of_the_user_is_not_replaced_by_an_index(content, folder, tmp_path, capsys):
    file = tmp_path / "notes.txt"
    file.write_bytes(content)
    code, _, err = ask(folder, capsys, "--index", str(file))
    assert code == 2
    assert "is no index of xverify history, and is not replaced" in err
    assert file.read_bytes() == content


def test_the_database_of_a_user_is_not_replaced_by_an_index(folder, tmp_path, capsys):
    file = tmp_path / "mine.duckdb"
    with duckdb.connect(str(file)) as other:
        other.execute("CREATE TABLE mine (a INT)")
    before = file.read_bytes()
    assert ask(folder, capsys, "--index", str(file))[0] == 2
    assert file.read_bytes() == before


def test_a_folder_that_cannot_hold_the_index_gets_a_temporary_one(tmp_path, capsys):
    with small_disk(tmp_path / "disk", "64k") as place:
        folder = keep(place, result(1), result(2, verdict="DIFFERENT"))
        code, history, err = ask(folder, capsys)
        assert (code, changes(history)) == (1, ["verdict"])
        assert "note: the index is not kept, so the next call reads new files again" in err
        assert len(err.splitlines()) == 1
        assert {file.name for file in folder.iterdir()} == {"r1.json", "r2.json"}
        code, _, err = ask(folder, capsys, "--index", str(place / "named.duckdb"))
        assert code == 3
        assert "cannot be written" in err


def test_an_interruption_leaves_the_old_index(folder, capsys, monkeypatch):
    ask(folder, capsys)
    before = (folder / NAME).read_bytes()
    keep(folder / "sub", result(3))

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(update, "_compare", interrupted)
        assert main(["history", "--results", str(folder)]) == 3
    assert (folder / NAME).read_bytes() == before
    assert sorted(file.name for file in folder.iterdir()) == [NAME, "r1.json", "r2.json", "sub"]
    capsys.readouterr()
    assert ask(folder, capsys)[1]["results"] == 3


def test_an_index_that_another_program_has_open_is_waited_for(folder, capsys, monkeypatch):
    ask(folder, capsys)
    monkeypatch.setattr("xverify.history.index.LOCK_SECONDS", 0.5)
    program = (
        f"import duckdb, time; c = duckdb.connect({str(folder / NAME)!r}); print('open', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        code, _, err = ask(folder, capsys)
        other.kill()
    assert code == 3
    assert "is open in another program: close it there, or name another file with --index" in err
    assert ask(folder, capsys)[0] == 0


@pytest.mark.slow
def test_several_processes_at_once_all_answer_and_leave_a_whole_index(folder, tmp_path, capsys):
    """New files come while four processes ask, again and again."""
    command = [sys.executable, "-m", "xverify", "history", "--results", str(folder), "--format", "json"]
    environment = {**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY)}
    for day in range(3, 6):
        asked = [
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            for _ in range(4)
        ]
        time.sleep(0.05 * day)
        keep(folder / f"day{day}", result(day, verdict="DIFFERENT" if day % 2 else "EQUAL"))
        for process in asked:
            out, err = process.communicate(timeout=120)
            assert process.returncode in (0, 1), err
            assert err == ""
            assert json.loads(out)["results"] in (day - 1, day)
    _, history, _ = ask(folder, capsys, "--all")
    assert history["results"] == 5
    (folder / NAME).unlink()
    assert ask(folder, capsys, "--all")[1] == history
