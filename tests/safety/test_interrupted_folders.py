"""Interruptions at any moment leave no temporary folder, and each one is heard."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest
from conftest import MODEL, SPEC, write_folder
from helpers.commandline import hear_interrupts

from xverify import interpreter
from xverify.processes import space


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture
def interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("moment", ["making", "inside", "removing", "all"])
@pytest.mark.parametrize("nested", [False, True])
def test_interruptions_at_any_moment_leave_no_folder(temporary, monkeypatch, moment, nested):
    make, remove = tempfile.mkdtemp, shutil.rmtree

    def interrupted_mkdtemp(*arguments, **named):
        made = make(*arguments, **named)
        if moment in ("making", "all"):
            interrupt()
        return made

    def interrupted_rmtree(*arguments, **named):
        if moment in ("removing", "all"):
            interrupt()
        remove(*arguments, **named)

    def use():
        with space.temporary_folder():
            if nested:
                with space.temporary_folder():
                    pass
            if moment in ("inside", "all"):
                interrupt()

    monkeypatch.setattr(tempfile, "mkdtemp", interrupted_mkdtemp)
    monkeypatch.setattr(shutil, "rmtree", interrupted_rmtree)
    with pytest.raises(KeyboardInterrupt):
        use()
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("interruptible")
def test_a_later_interruption_is_heard_again(temporary, monkeypatch):
    monkeypatch.setattr(space, "PATIENCE", -1.0)
    heard = 0
    with space.temporary_folder():
        for _ in range(3):
            try:
                interrupt()
            except KeyboardInterrupt:
                heard += 1
    assert (heard, list(temporary.iterdir())) == (3, [])


@pytest.mark.parametrize("milliseconds", [0, 1, 5])
def test_four_interruptions_within_milliseconds_leave_nothing(tmp_path, milliseconds):
    slow = MODEL.replace("import numpy as np", "import time, numpy as np").replace(
        "def build():", "def build():\n    time.sleep(9)"
    )
    port = write_folder(tmp_path / "port", ("numpy",), SPEC, slow)
    place = tmp_path / "temporary"
    place.mkdir()
    command = interpreter.module(
        sys.executable, "xverify", "run", str(port), "--subjects", "numpy", "--no-timing", "--cases", "1"
    )
    with subprocess.Popen(
        command, env={**os.environ, "TMPDIR": str(place)}, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, preexec_fn=hear_interrupts,
    ) as process:  # fmt: skip
        while not list(place.glob("xverify-*/*/worker.log")):
            assert process.poll() is None, process.stderr.read()
        for _ in range(4):
            process.send_signal(signal.SIGINT)
            signal.sigtimedwait([], milliseconds / 1000)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, list(place.iterdir())) == (3, []), out + err
    assert "Traceback" not in err
