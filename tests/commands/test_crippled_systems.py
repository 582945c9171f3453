"""What a system lacks, and what was damaged outside of xverify, is told in one line and no traceback."""

import json
import os
import shutil
import subprocess
import sys

import pytest

from xverify import host
from xverify.environments.store import STAMP, find
from xverify.processes import space

GOOD = {"python": "3.11.7", "pins": "sha256:0", "packages": {"numpy": "1.26.4", "jax": "0.4.30"}}
STAMPS = {
    "nothing": "", "half": json.dumps(GOOD)[:30], "a list": "[1, 2]", "a number": "7", "null": "null", "no JSON": "\0\1",
    "a list of packages": json.dumps(GOOD | {"packages": ["jax"]}),
    "versions that are numbers": json.dumps(GOOD | {"packages": {"jax": 4}}),
    "a version that is nothing": json.dumps(GOOD | {"packages": {"jax": None, "numpy": "1"}}),
    "a number for Python": json.dumps(GOOD | {"python": 3.11}),
    "a list of pins": json.dumps(GOOD | {"pins": ["a"]}),
    "deep": "[" * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["good", *STAMPS])
def test_a_damaged_stamp_of_an_environment_is_none(xverify, tmp_path, monkeypatch, kind):
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path))
    (tmp_path / "jax" / "bin").mkdir(parents=True)
    (tmp_path / "jax" / "bin" / "python").touch()
    (tmp_path / "jax" / STAMP).write_text(STAMPS.get(kind, json.dumps(GOOD)))
    for command in (("env", "list"), ("list",)):
        done = xverify(*command)
        assert (done.code, done.err) == (0, ""), done.err
    assert (find("jax") is not None) == (kind == "good")


def test_no_proc_is_one_line(xverify, tmp_path, monkeypatch):
    def absent():
        raise host.XverifyError("/proc is empty")

    monkeypatch.setattr(host, "check_proc", absent)
    for command in (("doctor",), ("run", "mlp", "--subjects", "numpy", "--no-timing")):
        done = xverify(*command)
        assert (done.code, done.out, len(done.err.splitlines())) == (3, "", 1), done.err
    assert space.host is host


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt" or os.geteuid() != 0 or not shutil.which("unshare"), reason="only root hides /proc")
def test_no_proc_at_all(tmp_path):
    for command in ("doctor", "run mlp --subjects torch:eager,numpy --no-timing"):
        hidden = f"mount -t tmpfs none /proc && exec {sys.executable} -m xverify {command}"
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c", hidden], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if "unshare" in done.stderr or "mount:" in done.stderr:
            pytest.skip("nothing can be mounted here")
        assert (done.returncode, len(done.stderr.splitlines())) == (3, 1), done.stderr
        assert "/proc is empty" in done.stderr
