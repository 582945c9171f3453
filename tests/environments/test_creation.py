"""The creation of an environment that fails, is interrupted, or finds something else in its place."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from conftest import hear_interrupts
from helpers.envadapters import caller, fake_uv, visible, write_adapters


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture
def call(xverify, adapters, tmp_path, monkeypatch):
    return caller(xverify, adapters, tmp_path / "environments", monkeypatch)


@pytest.mark.slow
def test_a_failed_creation_quotes_the_installer_and_leaves_nothing(call, adapters, tmp_path):
    broken = tmp_path / "broken"
    shutil.copytree(adapters, broken)
    (broken / "walled.txt").write_text("./no-such-package-1.0-py3-none-any.whl\n")
    done = call("env", "create", "walled", frameworks=broken)
    assert done.code == 3
    assert re.search(r"walled: installing walled\.txt .*failed:\n(.*\n)*.*no-such-package", done.err)
    assert "walled is ready" not in done.out
    assert visible(tmp_path / "environments") == []


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_leaves_nothing_and_ends_the_installer(adapters, tmp_path, monkeypatch, sent):
    place = tmp_path / "environments" / "walled"
    fake_uv(tmp_path, monkeypatch, f"mkdir {place} && sleep 100")
    process = subprocess.Popen(
        [sys.executable, "-m", "xverify", "env", "create", "walled"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "XVERIFY_FRAMEWORKS": str(adapters), "XVERIFY_ENVIRONMENTS": str(place.parent)},
        preexec_fn=hear_interrupts,
    )
    while not place.exists():
        assert process.poll() is None
    time.sleep(1)  # otherwise, on a busy machine, the installer might start before xverify knows its process number
    installers = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(sent)
    assert process.wait(30) == 3
    assert "interrupted" in process.stderr.read()
    assert visible(place.parent) == []
    assert installers
    _, alive = psutil.wait_procs(installers, timeout=5)
    assert {installer.status() for installer in alive} <= {psutil.STATUS_ZOMBIE}


def test_two_processes_cannot_create_one_environment_at_once(call, tmp_path):
    fcntl = pytest.importorskip("fcntl")
    root = tmp_path / "environments"
    root.mkdir()
    with (root / ".walled.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = call("env", "create", "walled")
    assert done.code == 3
    assert "another xverify command is working there" in done.err
    assert visible(root) == []


def test_a_python_without_ensurepip_names_the_package_to_install(call, tmp_path, monkeypatch):
    (tmp_path / "debian").mkdir()
    (tmp_path / "debian" / "sitecustomize.py").write_text("import sys; sys.modules['ensurepip'] = None")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "debian"), prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = call("env", "create", "walled")
    assert done.code == 3
    package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
    assert done.err.strip().endswith(
        f"has no ensurepip, which makes environments. On Debian type: apt-get install {package}"
    )


def test_uv_is_used_when_it_is_installed(call, tmp_path, monkeypatch):
    fake_uv(tmp_path, monkeypatch, "[ $1 = venv ] || { echo '× No solution found'; exit 1; }")
    done = call("env", "create", "walled")
    assert done.code == 3
    assert "installing walled.txt with uv (minutes) failed:\n  × No solution found" in done.err
    venv, install = (tmp_path / "asked").read_text().splitlines()
    place = tmp_path / "environments" / "walled"
    assert venv == f"venv --no-project --python {sys.executable} {place}"
    assert install.startswith(f"pip install --python {place}/bin/python -r ")


@pytest.mark.parametrize("action", ["create", "remove"])
def test_a_folder_that_is_no_environment_is_never_deleted(call, tmp_path, action):
    place = tmp_path / "environments" / "walled"
    place.mkdir(parents=True)
    (place / "thesis.txt").write_text("years")
    done = call("env", action, "walled")
    assert done.code == 2
    assert "is not an environment" in done.err
    assert (place / "thesis.txt").read_text() == "years"


def test_a_folder_that_cannot_be_written_is_reported(call, tmp_path):
    (tmp_path / "file").write_text("")
    done = call("env", "create", "walled", root=tmp_path / "file")
    assert done.code == 3
    assert "XVERIFY_ENVIRONMENTS names another place" in done.err
