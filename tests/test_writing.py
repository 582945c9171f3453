"""Files of a user are written whole or not at all, through links, and never in place of a device."""

import errno
import os
import stat
import subprocess
import sys
import threading

import numpy as np
import pytest
from conftest import small_disk

from xverify import writing
from xverify.errors import NotWritten, UsageError
from xverify.weights import load_file, save_file


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "store").mkdir()
    real, link = tmp_path / "store" / "real.json", tmp_path / "link.json"
    real.write_text("old")
    real.chmod(0o600)
    link.symlink_to(real)
    writing.write_text("new Δ", link)
    assert link.is_symlink()
    assert real.read_text(encoding="utf-8") == "new Δ"
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    (tmp_path / "dangling").symlink_to(tmp_path / "store" / "later")
    writing.write_text("made", tmp_path / "dangling")
    assert (tmp_path / "store" / "later").read_text() == "made"
    assert sorted(each.name for each in tmp_path.rglob("*")) == ["dangling", "later", "link.json", "real.json", "store"]


def test_links_in_a_circle_and_a_planted_link_are_not_followed(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(NotWritten, match="a cannot be written: Too many levels"):
        writing.write_text("x", tmp_path / "a")
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (tmp_path / "r.json.tmp").symlink_to(victim)  # a temporary name that could be guessed
    writing.write_text("new", tmp_path / "r.json")
    assert victim.read_text() == "keep"


def test_a_pipe_gets_the_content_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()
    writing.write_text("through", pipe)
    reader.join(10)
    assert got == ["through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert not writing.is_replaced(pipe)


def test_a_device_stays_a_device():
    before = os.stat("/dev/null")
    writing.write_text("gone", "/dev/null")
    assert os.stat("/dev/null").st_rdev == before.st_rdev
    with pytest.raises(NotWritten, match="/dev/full cannot be written: No space left"):
        writing.write_text("x", "/dev/full")


def test_standard_output_by_its_name_is_written_where_it_stands(tmp_path):
    text = "from xverify import writing; print('a'); writing.write_text('b\\n', '/dev/stdout'); print('c')"
    with (tmp_path / "out").open("w") as file:
        subprocess.run([sys.executable, "-c", text], stdout=file, check=True)
    assert (tmp_path / "out").read_text() == "a\nb\nc\n"


def test_a_failure_leaves_the_earlier_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "r.json"
    path.write_text("old")

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWritten, match=r"r\.json cannot be written: No space left on device"):
        writing.write_text("new", path)
    with pytest.raises(ZeroDivisionError), writing.replacing(path) as made:
        made.write_text(str(1 / 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_measured(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "gone").symlink_to(tmp_path / "none" / "r.json")
    for path, says in (
        (tmp_path, "is a folder"),
        (tmp_path / "none" / "r.json", "does not exist"),
        (tmp_path / "gone", "none does not exist"),
        (tmp_path / "loop", "Too many levels"),
        (tmp_path / ("x" * 300), "File name too long"),
        ("/proc/r.json", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=says):
            writing.check("--json", path)
    for path in ("/dev/null", "/dev/stdout", tmp_path / "r.json"):
        writing.check("--json", path)


def on_full_disk(tmp_path, *command):
    """Run a command whose new files may have 2 kB: a larger one fails as on a full disk, and what was there stays.

    It writes no bytecode, which Python would leave cut off in the place of the whole one.
    """
    limit = "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
    limit += "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)); "
    limit += "from xverify.commands._main import main; sys.argv[0] = 'xverify'; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", limit, *map(str, command)],
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".pkl"])
def test_weights_that_cannot_be_written_leave_the_old_file(tmp_path, suffix):
    if suffix == ".pt":
        pytest.importorskip("torch")
    save_file({"w": np.zeros(2, np.float32)}, tmp_path / f"old{suffix}")
    save_file({"w": np.ones(5000, np.float32)}, tmp_path / "new.npz")
    done = on_full_disk(tmp_path, "weights", "convert", "new.npz", f"old{suffix}", "--force")
    assert done.returncode == 3, done.stderr
    assert "no space left on the disk" in done.stderr  # for the temporary file from which the weights are read
    assert len(done.stderr.splitlines()) == 1
    assert (load_file(tmp_path / f"old{suffix}")["w"] == np.zeros(2)).all()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["new.npz", f"old{suffix}"]


@pytest.mark.parametrize("suffix", [".npz", ".safetensors", ".pt", ".pkl"])
def test_a_target_on_a_full_disk_stays_what_it_was(tmp_path, suffix):
    if suffix == ".pt":
        pytest.importorskip("torch")
    with small_disk(tmp_path / "small", "16k") as small:
        old = small / f"old{suffix}"
        save_file({"w": np.zeros(2, np.float32)}, old)
        save_file({"w": np.ones(50_000, np.float32)}, tmp_path / "new.npz")
        command = [sys.executable, "-m", "xverify", "weights", "convert", "new.npz", old, "--force"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == 3, done.stderr
        assert f"old{suffix} cannot be written" in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert (load_file(old)["w"] == np.zeros(2)).all()
        assert [each.name for each in small.iterdir()] == [old.name]


def test_an_error_about_a_result_file_holds_the_result(tmp_path):
    """The error holds the result; an interim write does not end the run."""
    from xverify.results import file
    from xverify.results.records import Result

    with pytest.raises(NotWritten) as caught:
        file.write(_result(), "/dev/full")
    assert isinstance(caught.value.result, Result)
    assert file.write_so_far(_result(), "/dev/full") == ""  # a device would keep the interim results, too
    assert "cannot be written" in file.write_so_far(_result(), tmp_path / "none" / "r.json")


def _result():
    from xverify.results import conditions
    from xverify.results.records import Result
    from xverify.results.verdicts import Outcome

    summaries = (
        conditions.Host(), conditions.Settings(), conditions.WeightsSummary(), conditions.InputsSummary(),
        conditions.ReferenceSummary(),
    )  # fmt: skip
    return Result("m", ("forward",), Outcome.PASS, (), "", "", *summaries, "rule")


@pytest.mark.slow
def test_a_run_whose_result_cannot_be_written_prints_its_table_and_ends_with_3(port, xverify):
    done = xverify("run", port, "--subjects", "numpy", "--rerun", 4, "--json", "/dev/full")
    assert done.code == 3
    assert "numpy" in done.out
    assert done.out.splitlines()[-1].startswith("INCONCLUSIVE")
    assert done.err.splitlines()[-1] == "xverify run: /dev/full cannot be written: No space left on device"
    assert stat.S_ISCHR(os.stat("/dev/full").st_mode)
    done = xverify("run", port, "--subjects", "numpy", "--rerun", 4, "--quiet", "--json", "/dev/stdout", process=True)
    assert done.code == 4  # the reference alone
    assert done.out.startswith("{")
