"""How workers end: with all that they started, and with their parent."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from conftest import MODEL, cli, signal_while_timing, write_folder

from xverify import host
from xverify.errors import Crashed, XverifyError
from xverify.framework import discovery as frameworks
from xverify.messages import DeviceMemory
from xverify.messages.limits import hint
from xverify.processes.ending import MARK, kill_marked, signal_name
from xverify.processes.log import KEPT, LARGEST, Log
from xverify.processes.space import LOCK, remove_stale, temporary_folder
from xverify.processes.worker import Worker

SLEEPS = "[sys.executable, '-c', 'import time; time.sleep(600)']"
# Code at the beginning of a model. The processes that it starts hold the worker's pipes.
LINGERS = {
    "a fork": "if os.fork() == 0:\n    time.sleep(600)",
    "a fork in another session": "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)",
    "Popen in another session": f"subprocess.Popen({SLEEPS}, start_new_session=True, close_fds=False)",
}
IMPORTS = "import os, signal, subprocess, sys, time\n"
FAST = ("--warmup", "1", "--rerun", "4", "--cases", "1")


def marked(folder):
    """The processes that a worker below this folder has started, and the worker itself."""
    found = []
    for each in psutil.process_iter():
        try:
            if str(folder) in each.environ().get(MARK, "") and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except psutil.Error:
            continue
    return found


def none_left(folder, seconds=5.0):
    deadline = time.monotonic() + seconds
    while (left := marked(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for each in left:
        each.kill()
    return not left


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    return folder


@pytest.mark.parametrize("then", ["", "os._exit(5)"], ids=["and the model goes on", "and the model exits"])
@pytest.mark.parametrize("lingers", LINGERS)
def test_a_process_that_a_model_leaves_behind_ends_with_the_run(tmp_path, temporary, lingers, then):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    (folder / "honest.py").write_text(f"{IMPORTS}{LINGERS[lingers]}\n{then}\n{MODEL}")
    done = cli(tmp_path, "run", folder, "--subjects", "numpy,honest", *FAST, "--timeout", "30", timeout=60)
    assert none_left(temporary)
    assert list(temporary.iterdir()) == []
    assert done.row("numpy")["status"] == "ok"
    assert done.row("honest")["status"] == ("crashed" if then else "ok")
    if then:
        assert "exited with status 5" in done.row("honest")["reason"]


@pytest.mark.parametrize(
    "sent",
    [
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
        signal.SIGKILL,
    ],
)
def test_the_end_of_the_parent_ends_everything(tmp_path, temporary, sent):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    (folder / "honest.py").write_text(f"{IMPORTS}{LINGERS['a fork']}\n{MODEL}")
    code = signal_while_timing(tmp_path, folder, sent)
    assert code == (-signal.SIGKILL if sent == signal.SIGKILL else 3)
    assert none_left(temporary)
    if sent == signal.SIGKILL:
        (left,) = temporary.iterdir()
        with temporary_folder():
            assert not left.exists(), "the next start removes it"
    assert list(temporary.iterdir()) == []


def test_a_stopped_worker_ends_with_its_parent(tmp_path, temporary):
    """The kernel ends it: it cannot end itself."""
    code = (
        "import sys, os, signal\nfrom pathlib import Path\nfrom xverify.framework import discovery\n"
        "from xverify.processes.worker import Worker\n"
        f"worker = Worker(discovery.load('numpy'), sys.executable, Path({str(temporary)!r}), 1, 'cpu', 60.0)\n"
        "worker.start()\nos.kill(worker.pid, signal.SIGSTOP)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    if sys.platform == "linux":
        assert none_left(temporary)


def test_a_process_that_was_reaped_is_not_killed_by_its_number(monkeypatch):
    process = subprocess.Popen([sys.executable, "-c", ""], start_new_session=True)
    process.wait()
    killed = []
    monkeypatch.setattr(os, "killpg", lambda *arguments: killed.append(arguments))
    host.kill_group(process)
    assert killed == []


def test_only_processes_with_the_mark_are_killed(tmp_path):
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    own, other = (
        subprocess.Popen(command, env={**os.environ, MARK: str(tmp_path / name)}, start_new_session=True)
        for name in ("run/worker", "runs")
    )
    kill_marked(tmp_path / "run")
    try:
        assert own.wait(10) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


def test_a_folder_is_stale_only_without_its_owner(temporary):
    with temporary_folder() as folder:
        remove_stale()
        assert (folder / LOCK).exists()
        (temporary / "xverify-without-lock").mkdir()
        stale = temporary / "xverify-stale"
        stale.mkdir()
        (stale / LOCK).touch()
        (temporary / "xverify-link").symlink_to(stale)
        remove_stale()
        assert sorted(each.name for each in temporary.iterdir()) == sorted(
            [folder.name, "xverify-link", "xverify-without-lock"]
        )
    assert not folder.exists()


def test_a_deleted_temporary_folder_is_one_clear_line(temporary):
    def use():
        with temporary_folder() as folder:
            shutil.rmtree(folder)
            (folder / "file").write_text("")

    with pytest.raises(XverifyError, match=r"the temporary folder .* cannot be used: No such file.*set TMPDIR"):
        use()


HOLDS_ALL = """
import os, resource, threading, time
from xverify.processes.space import temporary_folder

held = []

def hold_all():
    try:
        while True:
            held.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        pass

def hold_for_a_while():
    ends = time.monotonic() + 0.5
    while time.monotonic() < ends:
        hold_all()
    for each in held:
        os.close(each)

with temporary_folder() as folder:
    (folder / "weights").mkdir()
    (folder / "weights" / "a.npz").write_bytes(b"")
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))
    hold_all()
    threading.Thread(target=hold_for_a_while).start()
"""


def test_the_folder_is_deleted_although_a_thread_holds_the_last_descriptors_for_a_while(temporary):
    done = subprocess.run([sys.executable, "-c", HOLDS_ALL], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert list(temporary.iterdir()) == []


def test_signals_are_taken_only_where_nobody_else_does(temporary):
    def handler(*_):
        pass

    before = signal.signal(signal.SIGHUP, handler)
    try:
        with temporary_folder():
            assert signal.getsignal(signal.SIGHUP) is handler
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        found = []
        thread = threading.Thread(target=lambda: found.append(_entered()))
        thread.start()
        thread.join()
        assert found == [signal.SIG_DFL]
    finally:
        signal.signal(signal.SIGHUP, before)


def _entered():
    with temporary_folder():
        return signal.getsignal(signal.SIGTERM)


def test_an_unreadable_array_file_is_a_row(tmp_path, temporary):
    """The model cuts the file with its own outputs."""
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    cuts = (
        "import glob, threading\ndef cut():\n    while True:\n        for path in glob.glob('outputs-*.npz'):\n"
        "            os.truncate(path, 40)\n        time.sleep(0.001)\nthreading.Thread(target=cut, daemon=True).start()\n"
    )
    (folder / "honest.py").write_text(f"{IMPORTS}{cuts}{MODEL}")
    done = cli(tmp_path, "run", folder, "--subjects", "numpy,honest", *FAST)
    assert done.code == 3
    assert done.row("numpy")["status"] == "ok"
    assert "outputs-0-0.npz, a file of arrays that it wrote, cannot be read" in done.row("honest")["reason"]


def test_a_rebuild_that_fails_after_a_crash_of_the_compiler_is_a_row(tmp_path, monkeypatch):
    marker = tmp_path / "tumbled"
    monkeypatch.setenv("TUMBLE_FILE", str(marker))
    folder = write_folder(tmp_path / "port", ("numpy", "tumbles"))
    fails = f"import os\nif os.path.exists({str(marker)!r}):\n    raise ValueError('planted')\n"
    (folder / "tumbles.py").write_text(fails + MODEL)
    done = cli(tmp_path, "run", folder, "--subjects", "numpy,tumbles", *FAST)
    assert done.code == 3
    assert done.row("numpy")["status"] == "ok"
    assert "planted" in done.row("tumbles")["reason"]


def test_a_request_to_a_closed_worker_is_a_crash(tmp_path):
    with Worker(frameworks.load("numpy"), sys.executable, tmp_path, 1, "cpu", 60.0) as worker:
        pass
    with pytest.raises(Crashed, match="exited with status 0 while answering the request DeviceMemory"):
        worker.ask(DeviceMemory())


def test_a_signal_without_a_name():
    assert signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert signal_name(signal.SIGRTMIN + 3) == f"signal {signal.SIGRTMIN + 3}"


@pytest.mark.slow
def test_the_limit_of_memory_is_named_in_the_row(tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest"))
    takes = MODEL.replace("    w = self.weights\n", "    held = np.ones(10**9)\n        w = self.weights\n", 1)
    assert "held" in takes
    (folder / "honest.py").write_text(takes)
    done = cli(tmp_path, "run", folder, "--subjects", "numpy,honest", "--memory", "2", *FAST)
    assert done.code == 3
    assert done.row("numpy")["status"] == "ok"
    # The first where a control group bounds the memory, the second where the process does so itself.
    killed = r"killed by SIGKILL .* \(it needed more than the 2 GB of --memory 2\)"
    refused = r"out of memory.* \(--memory 2 limits each worker to 2 GB\)$"
    assert re.search(f"{killed}|{refused}", done.row("honest")["reason"])
    done = cli(tmp_path, "run", folder, "--memory", "0", *FAST)
    assert done.code == 2
    assert "--memory" in done.err


def test_the_limit_is_named_only_where_it_may_be_the_cause():
    assert hint(2.0, "ValueError: shapes differ") == ""
    assert hint(None, "out of memory", crashed=True) == ""
    assert "--memory 2" in hint(2.0, "std::bad_alloc")
    assert hint(2.0, "", crashed=True, kills=1) == " (it needed more than the 2 GB of --memory 2)"


def test_a_log_is_bounded(tmp_path):
    path = tmp_path / "worker.log"
    path.write_bytes(b"first\n" + b"x" * LARGEST + b"\nlast\n")
    log = Log(path)
    with path.open("ab") as worker:
        log.bound()
        worker.write(b"later\n")
    assert path.stat().st_size < KEPT + 100
    text = log.text()
    assert text.startswith("[")
    assert "bytes were left out here]" in text.splitlines()[0]
    assert text.endswith("last\nlater\n")
    assert log.last_line() == "later"
