"""Ctrl-C ends a command with one line and exit code 3, at whatever moment it comes."""

import os
import signal
import subprocess
import sys
import time
import types

import pytest

from xverify import interrupts

# The command as ``python -m xverify`` runs it. A byte says that it handles the signal: Python itself starts before that.
PROGRAM = """
import os, runpy, signal
usual = signal.signal
def noted(*arguments):
    found = usual(*arguments)
    signal.signal = usual
    os.write({pipe}, b"x")
    return found
signal.signal = noted
runpy.run_module("xverify", run_name="__main__", alter_sys=True)
"""
ENDLESS = ("run", "mlp", "--subjects", "torch:eager,numpy", "--quiet", "--warmup", "1", "--rerun", "100000000")
slow = pytest.mark.slow


@pytest.mark.skipif(not hasattr(os, "set_inheritable") or os.name == "nt", reason="descriptors are inherited otherwise")
@pytest.mark.parametrize(
    ("command", "moments"),
    [
        (("list",), (0.0, 0.1)),
        pytest.param(("--help",), (0.0, 0.02, 0.05, 0.1), marks=slow),
        pytest.param(("list", "--json"), (0.02, 0.05, 0.2, 0.4, 0.8, 1.2, 1.6, 2.0), marks=slow),
        pytest.param(("check", "mlp.onnx"), (0.05, 0.1, 0.2, 0.4, 0.8, 1.2, 1.6, 2.0, 3.0), marks=slow),
        pytest.param((*ENDLESS, "--json", "r.json"), (0.0, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.2, 1.6, 2.0), marks=slow),
    ],
    ids=lambda words: str(words[0]),
)
def test_ctrl_c_is_one_line_and_code_3_whenever_it_comes(tmp_path, command, moments):
    if command[0] == "check":
        made = [sys.executable, "-m", "xverify", "convert", "mlp", "mlp.onnx"]
        subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    codes = []
    for moment in moments:
        ready, told = os.pipe()
        with subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(pipe=told), *command],
            cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[told],
        ) as process:  # fmt: skip
            os.close(told)
            assert os.read(ready, 1) == b"x"
            os.close(ready)
            time.sleep(moment)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        codes.append(process.returncode)
        ended = [line for line in err.splitlines() if line.startswith("xverify: ")]
        assert process.returncode in ((3,) if command[:4] == ENDLESS[:4] else (0, 3)), (moment, out, err)
        if ended or "2 interrupted" not in out:  # a run that has begun ends with its report
            assert ended == ([interrupts.LINE] if process.returncode == 3 else []), (moment, out, err)
        assert "Traceback" not in out + err, (moment, err)
        assert "Exception ignored" not in err, (moment, err)
    assert codes[0] == interrupts.CODE


def test_a_module_that_drops_an_interruption_does_not_lose_it(tmp_path, monkeypatch):
    """The exception is raised when the import has ended, however the module treats exceptions."""
    (tmp_path / "dropping.py").write_text(
        "import os, signal, time\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\n    time.sleep(0.01)\n"
        "except BaseException as error:\n    found = error\nelse:\n    found = None\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    usual = signal.signal(signal.SIGINT, interrupts.interrupt)
    try:
        import dropping

        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
    finally:
        signal.signal(signal.SIGINT, usual)
        sys.modules.pop("dropping", None)
    assert isinstance(dropping, types.ModuleType)
    assert dropping.found is None


def test_an_import_that_does_not_end_is_interrupted_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(interrupts, "PATIENCE", 0.2)
    (tmp_path / "endless.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    usual = signal.signal(signal.SIGINT, interrupts.interrupt)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            import endless  # noqa: F401
    finally:
        signal.signal(signal.SIGINT, usual)
    assert time.monotonic() - begun < 10
