"""The last result is kept, and commands that read a result mean it when no file is named."""

import os
import stat
from dataclasses import replace

import pytest
from conftest import MODEL, write_folder
from helpers.sampleresults import RESULT
from helpers.terminals import in_terminal

from xverify.commands import _last as last
from xverify.results.file import write

WRONG = MODEL.replace("return h @", "return 1.01 * h @")
OF = ("--subjects", "numpy,honest", "--no-timing")
pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The folder in which results are kept; it is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "xverify" / "results"


@pytest.fixture
def failed(tmp_path, xverify, state):
    """A port that was right, and then wrong."""
    port = write_folder(tmp_path / "port", ("numpy", "honest"))
    assert xverify("run", port, *OF).code == 0
    (port / "honest.py").write_text(WRONG)
    assert xverify("run", port, *OF, "--json", tmp_path / "wrong.json").code == 1
    return port


def test_bare_commands_mean_the_last_result(failed, xverify, tmp_path):
    explained = xverify("explain")
    assert explained.code == 1
    assert "honest, forward: DIFFERENT" in explained.out
    assert explained.err.startswith("the last result: port, forward, batch 4, of 20")
    reported = xverify("report", "--html", tmp_path / "page.html")
    assert reported.code == 1
    assert "DIFFERENT" in (tmp_path / "page.html").read_text()
    compared = xverify("diff", "--errors-only")
    assert compared.code == 1
    assert "different (EQUAL → DIFFERENT)" in compared.out.replace("IDENTICAL → DIFFERENT", "EQUAL → DIFFERENT")
    assert [line[:22] for line in compared.err.splitlines()] == ["the last result: port,", "the result before it: "]


def test_one_file_is_compared_with_the_last_result(failed, xverify, tmp_path):
    done = xverify("diff", tmp_path / "wrong.json", "--errors-only")
    assert "different (DIFFERENT)" in done.out, done.err
    assert "result before it" not in done.err


@pytest.mark.parametrize("command", ["explain", "report", "diff"])
def test_without_a_last_result_the_message_says_what_to_do(command, xverify, state):
    done = xverify(command)
    assert done.code == 2
    assert (
        f"no result is kept in {state} yet: name a result file, or run xverify run or xverify check first" in done.err
    )
    assert not state.exists()


def test_the_only_result_of_a_model_has_none_to_be_compared_with(failed, xverify, tmp_path):
    other = write_folder(tmp_path / "other", ("numpy", "honest"))
    assert xverify("run", other, *OF).code == 0
    done = xverify("diff")
    assert done.code == 2
    assert "the last result is the only one of other that is kept: run it again after a change" in done.err


def test_a_few_of_the_newest_are_kept(state, monkeypatch):
    models = [f"m{index}" for index in range(last.MOST + 3)]
    assert all(last.keep(replace(RESULT, model=model)) for model in models)
    assert len(list(state.iterdir())) == last.MOST
    assert last.newest()[1].model == models[-1]
    size = last.newest()[0].stat().st_size
    monkeypatch.setattr(last, "MOST_BYTES", 3 * size)
    assert last.keep(replace(RESULT, model="m"))
    assert 1 < len(list(state.iterdir())) <= 3
    monkeypatch.setattr(last, "MOST_BYTES", size // 2)
    assert not last.keep(RESULT), "it is larger than all of them may be"


@pytest.mark.parametrize("place", ["/dev/null", "/proc", "a file"])
def test_a_folder_that_cannot_be_written_is_no_error_of_a_run(place, tmp_path, xverify, monkeypatch):
    (tmp_path / "a file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / place))
    done = xverify("run", write_folder(tmp_path / "port"), "--no-timing", "--subjects", "numpy")
    assert done.code == 4, done.err  # the reference alone
    assert "state" not in done.err + done.out
    asked = xverify("explain")
    assert asked.code == 2
    assert asked.err.startswith("xverify explain: no ")


@pytest.mark.parametrize("made", ["pipe", "link", "folder", "dangling"])
def test_what_is_no_file_of_this_user_is_neither_read_nor_removed(made, state, tmp_path, xverify):
    write(replace(RESULT, model="foreign"), tmp_path / "foreign.json")
    assert last.keep(replace(RESULT, model="own"))
    planted = state / f"{'9' * 20}-1.json"
    targets = {"link": tmp_path / "foreign.json", "dangling": tmp_path / "nowhere"}
    if made in targets:
        planted.symlink_to(targets[made])
    else:
        os.mkfifo(planted) if made == "pipe" else planted.mkdir()
    done = xverify("explain")
    assert done.out.startswith("own, forward: "), done.err
    for _ in range(last.MOST + 1):
        assert last.keep(RESULT)
    assert os.path.lexists(planted)
    assert (tmp_path / "foreign.json").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_results_of_another_user_are_not_read(state, xverify):
    assert last.keep(replace(RESULT, model="own"))
    assert last.keep(replace(RESULT, model="foreign"))
    os.chown(last.newest()[0], 65534, 65534)
    assert xverify("explain").out.startswith("own, forward: ")
    os.chown(state, 65534, 65534)
    done = xverify("explain")
    assert done.code == 2
    assert f"no last result is known: the folder {state} belongs to another user; name a result file" in done.err
    assert not last.keep(RESULT)


def test_a_folder_that_others_can_write_is_not_used(state, xverify):
    assert last.keep(RESULT)
    state.chmod(0o777)
    done = xverify("explain")
    assert done.code == 2
    assert "can be written by other users; name a result file" in done.err
    assert not last.keep(RESULT)


def test_the_folder_is_private(state):
    assert last.keep(RESULT)
    assert stat.S_IMODE(state.stat().st_mode) == 0o700


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b'{"schema_version": 99}'])
def test_a_damaged_result_is_named(content, state, xverify):
    assert last.keep(RESULT)
    path = last.newest()[0]
    path.write_bytes(content)
    done = xverify("explain")
    assert done.code == 2
    assert str(path) in done.err


def test_hostile_names_are_printed_as_escapes(state, xverify):
    assert last.keep(replace(RESULT, model="m\x1b[2J\n::error::x"))
    done = xverify("explain")
    assert "\x1b" not in done.err + done.out
    assert done.err.startswith("the last result: m\\x1b[2J")
    assert len(done.err.splitlines()) == 1


@pytest.mark.slow
def test_after_a_fail_a_terminal_shows_the_next_commands(tmp_path, state, xverify):
    port = write_folder(tmp_path / "port", ("numpy", "honest"))
    (port / "honest.py").write_text(WRONG)
    command = ("run", "port", *OF)

    def commands(done):
        return [line[2:].split("  ")[0] for line in done.screen if line.startswith("  xverify ")]

    done = in_terminal(tmp_path, *command)
    assert done.code == 1
    assert commands(done) == ["xverify explain --faults", "xverify report --html page.html"]
    printed = commands(in_terminal(tmp_path, *command))
    assert printed[2:] == ["xverify diff --errors-only"]
    for each in printed:
        assert in_terminal(tmp_path, *each.split()[1:]).code in (0, 1)
    assert commands(in_terminal(tmp_path, *command, "--quiet")) == []
    assert xverify("run", port, *OF, process=True).out.splitlines()[-1].startswith("FAIL port")
