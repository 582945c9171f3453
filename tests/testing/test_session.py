"""A test run keeps the frameworks that its tests import, and nothing of their models, and ends with nothing left behind."""

import signal
import tempfile
import time

import psutil
import pytest
from conftest import MODEL, write_folder

from xverify.processes import forking, space
from xverify.processes.ending import MARK

pytestmark = pytest.mark.skipif(not forking.has_pidfd(), reason="a system on which no worker is forked")

# An adapter of which every process that imports it leaves a file.
ADAPTER = """
import os, pathlib, sys
from xverify.frameworks.numpy.adapter import Adapter as Numpy

class Adapter(Numpy):
    name = "forks"
    forks = True

    def __init__(self, threads, device):
        super().__init__(threads, device)
        if "imported" not in sys.modules:
            sys.modules["imported"] = sys
            (pathlib.Path(os.environ["NOTED"]) / str(os.getpid())).touch()
"""
PORT = 'assert_port_equal("port", ["numpy", "forks"])'
TESTS = f"""
import pathlib
from xverify.testing import assert_port_equal
PORT = pathlib.Path("port/forks.py")

def test_first():
    {PORT}

def test_second():
    {PORT}

def test_a_changed_file_is_read_again():
    text = PORT.read_text()
    PORT.write_text(text.replace("np.tanh", "np.sin"))
    try:
        {PORT}
    except AssertionError as error:
        assert "DIFFERENT" in str(error)
    else:
        raise AssertionError("the file of an earlier test was compared")
    finally:
        PORT.write_text(text)

def test_later():
    {PORT}
"""
# A model file that a later model of the same process cannot be built after.
SPOILS = f"""{MODEL}
import os
import xverify.reading as shared
assert getattr(shared, "SPOILED", os.getpid()) == os.getpid()
shared.SPOILED = os.getpid()
"""


@pytest.fixture
def session(tested, tmp_path):
    """Run these tests in a process of pytest. Returns how it ended, and the number of processes that imported the framework."""
    (tmp_path / "adapters").mkdir()
    (tmp_path / "noted").mkdir()
    (tmp_path / "temporary").mkdir()
    (tmp_path / "adapters" / "forks.py").write_text(ADAPTER)
    write_folder(tmp_path / "repository" / "port", ("numpy", "forks"), model=SPOILS)

    def session(tests, *arguments):
        done = tested(
            tests, *arguments, frameworks=tmp_path / "adapters", process=True,
            NOTED=str(tmp_path / "noted"), TMPDIR=str(tmp_path / "temporary"),
        )  # fmt: skip
        return done, len(list((tmp_path / "noted").iterdir()))

    session.place = tmp_path
    yield session
    deadline = time.monotonic() + 5
    while left(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left(tmp_path)
    assert not folders(tmp_path)


def folders(place):
    """The temporary folders of xverify that are left."""
    return list((place / "temporary").glob("xverify-*"))


def left(place):
    """The processes of xverify whose files are in this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK, "").startswith(str(place)) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, OSError):
            pass
    return found


@pytest.mark.slow
def test_a_framework_is_imported_once_and_no_model_or_its_state_is_kept(session):
    done, imports = session(TESTS)
    assert (done.code, "4 passed" in done.out) == (0, True), done.out
    assert imports == 1


@pytest.mark.slow
def test_without_the_plugin_every_test_imports_it(session):
    done, imports = session(TESTS, "-p", "no:xverify")
    assert (done.code, imports) == (0, 4), done.out


@pytest.mark.slow
def test_each_process_of_xdist_keeps_its_own(session):
    pytest.importorskip("xdist")
    done, imports = session(TESTS.replace("np.sin", "np.tanh").replace("else:", "except KeyError:"), "-n", "2")
    assert (done.code, imports) == (0, 2), done.out


@pytest.mark.slow
@pytest.mark.parametrize("signals", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda each: each.name)
def test_nothing_is_left_when_the_test_run_is_ended(session, monkeypatch, signals):
    first = TESTS.partition("def test_second")[0]
    ends = f"def test_ends():\n    import os, time\n    os.kill(os.getpid(), {int(signals)})\n    time.sleep(20)\n"
    done, imports = session(first + ends)
    assert done.code not in (0, 1), done.out
    assert imports == 1
    if signals != signal.SIGINT:  # the next start of xverify deletes what a process that was killed could not
        assert len(folders(session.place)) == 1
        monkeypatch.setattr(tempfile, "tempdir", str(session.place / "temporary"))
        space.remove_stale()
