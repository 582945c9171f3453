"""xverify sweep, from outside: what it runs, what it does not run again, and how it goes on after it was killed."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from conftest import FAULTY, write_folder

from xverify.report.outputs import of_results
from xverify.results.file import read

pytestmark = pytest.mark.slow

FAST = ("--warmup", "1", "--rerun", "3", "--cases", "1")


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest", "swapped", "exits"))


def files(tmp_path):
    return sorted((tmp_path / "here" / "results").glob("*.json"))


def times(tmp_path):
    return {path.name: path.stat().st_mtime_ns for path in files(tmp_path)}


def test_cells_run_once_and_again_when_something_changed(xverify, folder, tmp_path):
    sweep = ("sweep", folder, "--batch", "1,4", "--subjects", "numpy,honest", *FAST)
    listed = xverify(*sweep, "--dry-run")
    assert listed.code == 0
    assert "2 cells, of which 2 would run" in listed.out
    assert not files(tmp_path)

    first = xverify(*sweep)
    assert first.code == 0, first.err
    assert "PASS 2 cells: 2 PASS (2 run now; results in results)" in first.out
    assert "cell 1 of 2: port, forward, batch 1" in first.err
    assert [read(path).settings.batch for path in files(tmp_path)] == [1, 4]

    before = times(tmp_path)
    second = xverify(
        *sweep, "--junit", "sweep.xml", "--html", "sweep.html", "--markdown", "sweep.md", "--csv", "sweep.csv"
    )
    assert "nothing was run: every result was there" in second.out
    assert times(tmp_path) == before
    here = tmp_path / "here"
    assert (here / "sweep.xml").read_text().count("<testcase") == 4
    assert "port, forward, batch 4" in (here / "sweep.html").read_text()
    assert all((here / f"sweep.{kind}").stat().st_size for kind in ("md", "csv"))

    (folder / "honest.py").write_text((folder / "honest.py").read_text() + "\n# another version\n")
    third = xverify(*sweep[:3], "1", *sweep[4:])
    assert "1 run now" in third.out
    assert len(files(tmp_path)) == 3  # the earlier result stays, for a history

    forced = xverify(*sweep[:3], "1", *sweep[4:], "--force", "--quiet")
    assert (forced.err, len(forced.out.splitlines())) == ("", 1)
    assert "1 run now" in forced.out
    assert len(files(tmp_path)) == 3


def test_a_wrong_port_and_a_cell_that_fails_are_rows(xverify, folder, tmp_path):
    (tmp_path / "nightly.toml").write_text(
        f"""
        [matrix]
        model = ["{folder}"]
        subjects = [["numpy", "honest"], ["numpy", "swapped"], ["numpy", "exits"]]
        [settings]
        warmup = 1
        rerun = 3
        """
    )
    done = xverify("sweep", tmp_path / "nightly.toml")
    assert done.code == 1
    assert "FAIL 3 cells: 1 PASS, 1 FAIL, 1 ERROR" in done.out
    # A process that ended by itself is tried once more.
    assert "4 run now" in done.out
    assert "DIFFERENT" in done.out
    assert "crashed" in done.out
    again = xverify("sweep", tmp_path / "nightly.toml")
    assert (again.code, "nothing was run" in again.out) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("absent",), "unknown model 'absent'"),
        (("mlp", "nightly.toml"), "nightly.toml lists the cells of the sweep: name one such file, or models"),
        (("nightly.toml",), "nightly.toml: No such file"),
        (("nightly.toml", "--batch", "2"), "--batch belongs to models on the command line"),
        (("mlp", "--batch", "1,x"), "--batch is 'x': it must be whole numbers"),
        (("mlp", "--retries", "-1"), "--retries is -1: it must be at least 0"),
        (("mlp", "--scheduler", "tcp://127.0.0.1:1", "--cluster", "local:1"), "leave one of them out"),
        (("mlp", "--share", "x"), "--share is for the machines of a cluster"),
    ],
)
def test_wrong_arguments_are_one_line_and_run_nothing(xverify, tmp_path, arguments, says):
    done = xverify("sweep", *arguments)
    assert done.code == 2
    assert says in done.err
    assert not files(tmp_path)


def test_a_folder_that_cannot_be_made_or_written(xverify, folder, tmp_path):
    (tmp_path / "file").touch()
    done = xverify("sweep", folder, "--subjects", "numpy", "--results", tmp_path / "file" / "results", *FAST)
    assert done.code == 3
    assert "Not a directory" in done.err


def started(folder, here, *more):
    here.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "xverify", "sweep", str(folder), "--subjects", "numpy,honest", "--warmup", "1"]
    return subprocess.Popen(
        [*command, "--cases", "1", *more], cwd=here, env={**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def wait_for(process, text):
    for line in process.stderr:
        if text in line:
            break
    # What else it says must not fill the pipe.
    threading.Thread(target=process.stderr.read, daemon=True).start()


def test_a_second_sweep_into_the_same_folder_is_refused(xverify, folder, tmp_path):
    with started(folder, tmp_path / "here", "--rerun", "100000000") as process:
        try:
            wait_for(process, "cell 1 of 1")
            done = xverify("sweep", folder, "--subjects", "numpy", *FAST)
            assert done.code == 2
            assert f"another sweep works in results (process {process.pid})" in done.err
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def test_a_killed_sweep_goes_on_where_it_was(xverify, folder, tmp_path):
    with started(folder, tmp_path / "here", "--batch", "1,2,4", "--rerun", "200000") as process:
        wait_for(process, "cell 2 of 3")
        time.sleep(1.0)
        process.kill()
    done = [path for path in files(tmp_path) if json.loads(path.read_text())["complete"]]
    assert [read(path).settings.batch for path in done] == [1]
    kept = done[0].stat().st_mtime_ns
    after = xverify("sweep", folder, "--subjects", "numpy,honest", "--warmup", "1", "--cases", "1", "--batch", "1,2,4",
                    "--rerun", "200000")  # fmt: skip
    assert after.code == 0, after.err
    assert "2 run now" in after.out
    assert "1 of 3 cells have a result; 2 cells to run" in after.err
    assert done[0].stat().st_mtime_ns == kept
    assert [path.name for path in Path(tmp_path, "here", "results").iterdir() if path.suffix == ".tmp"] == []


def test_an_interrupted_sweep_says_so_and_keeps_what_it_has(folder, tmp_path):
    with started(folder, tmp_path / "here", "--batch", "1,2", "--rerun", "100000000") as process:
        wait_for(process, "cell 1 of 2")
        time.sleep(2.0)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        assert process.wait(60) == 3
    assert "interrupted: the same command goes on where it was" in out
    assert [json.loads(path.read_text())["complete"] for path in files(tmp_path)] in ([], [False])


def test_a_result_that_cannot_be_read_is_run_again(xverify, folder, tmp_path):
    sweep = ("sweep", folder, "--subjects", "numpy", *FAST)
    assert xverify(*sweep).code == 4  # the reference alone
    [path] = files(tmp_path)
    path.write_text(path.read_text()[:-200])
    assert "1 run now" in xverify(*sweep).out
    result = read(path)
    assert result.complete
    assert of_results([result])["csv"]().count("\n") == 2


def test_a_full_disk_loses_no_result_that_was_written(xverify, folder, tmp_path):
    from conftest import small_disk

    with small_disk(tmp_path / "disk", "48k") as disk:
        done = xverify("sweep", folder, "--subjects", "numpy", "--batch", "1,2,3,4,5,6,7,8", "--results", disk, *FAST)
        assert done.code == 3
        assert "no space left" in done.err.lower()
        kept = [read(path).complete for path in disk.glob("*.json")]
        assert sum(kept) >= 1
        assert kept.count(False) <= 1  # the beginning of the cell that was running
