"""The limit of a worker's memory: by a control group, and by the process itself where no group can be made."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from xverify.messages import cgroup, limits

MB = 10**6
ENTERS = "from xverify.messages import limits; limits.apply(); "


def python(code, **variables):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **variables}, capture_output=True, text=True)


@pytest.fixture
def group():
    """A group of 300 MB."""
    made = cgroup.create(300 * MB)
    if made is None:
        pytest.skip("this process may not make a control group of memory")
    yield made
    made.remove()
    assert not made.folder.exists()


def test_a_process_that_needs_more_is_killed_and_counted(group):
    where = {cgroup.VARIABLE: str(group.folder)}
    assert python(ENTERS + "bytearray(b'x') * (100 * 10**6)", **where).returncode == 0
    assert group.kills() == 0
    assert python(ENTERS + "bytearray(b'x') * (500 * 10**6)", **where).returncode == -9
    assert group.kills() == 1


def test_processes_that_the_worker_starts_count_together(group):
    child = "import time; held = bytearray(b'x') * (200 * 10**6); print(1, flush=True); time.sleep(60)"
    code = f"""
import subprocess, sys
started = [subprocess.Popen([sys.executable, "-c", {child!r}], stdout=subprocess.PIPE) for _ in range(2)]
said = [process.stdout.readline() for process in started]
[process.kill() for process in started]
"""
    python(ENTERS + code, **{cgroup.VARIABLE: str(group.folder)})
    assert group.kills() >= 1, "the kernel may kill either of the two, also the one that had its memory first"


def test_memory_that_is_only_reserved_does_not_count(group):
    code = "import mmap; held = mmap.mmap(-1, 900 * 10**6); print('reserved')"
    assert python(ENTERS + code, **{cgroup.VARIABLE: str(group.folder)}).stdout == "reserved\n"


def test_without_a_group_the_process_limits_itself():
    done = python(ENTERS + "bytearray(900 * 10**6)", **limits.variables(0.5))
    assert done.returncode == 1
    assert "MemoryError" in done.stderr
    gone = {cgroup.VARIABLE: "/nowhere", **limits.variables(0.5)}
    assert "MemoryError" in python(ENTERS + "bytearray(900 * 10**6)", **gone).stderr


def test_groups_of_processes_that_were_killed_are_removed(group):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    left = group.folder.parent / f"{cgroup.PREFIX}{ended.pid}-0"
    left.mkdir()
    second = cgroup.create(300 * MB)
    try:
        assert not left.exists()
        assert group.folder.exists()
    finally:
        second.remove()


@pytest.mark.parametrize(
    ("own", "made", "place"),
    [
        ("4:memory:/job\n0::/\n", {"memory/job": None}, ("memory/job", cgroup.ONE)),
        ("4:cpu,memory:/gone\n", {"memory": None}, ("memory", cgroup.ONE)),
        ("0::/user/run\n", {"user/run": None, "user": "cpu memory pids"}, ("user", cgroup.TWO)),
        ("0::/user/run\n", {"user/run": None, "user": "cpu pids"}, None),
        ("", {}, None),
    ],
)
def test_where_a_group_is_made(tmp_path, monkeypatch, own, made, place):
    for folder, controllers in made.items():
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        if controllers:
            (tmp_path / folder / "cgroup.subtree_control").write_text(controllers)
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cgroup, "OWN", tmp_path / "own")
    monkeypatch.setattr(cgroup, "ROOT", tmp_path)
    assert cgroup._place() == (place and (tmp_path / place[0], place[1]))


def test_no_group_without_control_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroup, "OWN", Path(tmp_path / "missing"))
    assert cgroup.create(MB) is None
