"""The policy of memory allocation: the variables of a process, and what they do to its page faults."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import write_folder

from xverify.framework.discovery import load
from xverify.processes.allocator import allocator_variables, glibc_version, with_huge_pages
from xverify.processes.command import worker_command

OWN = {
    "HOME": "/root",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1:glibc.pthread.rseq=0",
}
# Many weights, which a loader could leave behind as free memory, and calls that need and free 64 MiB.
MODEL = """
import numpy as np
class Net:
    def __init__(self):
        self.weights = {f"w{index}": np.zeros((1024, 1024), np.float32) for index in range(24)}
    def __call__(self, x):
        parts = [np.ones(2**21, np.float32) for _ in range(8)]
        return x @ np.ones((8, 3), np.float32) * parts[0][0] + self.weights["w0"][0, 0]
def build():
    return Net()
"""
# The same calls without xverify.
SCRIPT = """
import resource, sys
import numpy as np
sys.path.insert(0, sys.argv[1])
import numpy_model
net = numpy_model.build()
x = np.zeros((4, 8), np.float32)
for _ in range(4):
    net(x)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(16):
    net(x)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 16)
"""


def test_every_policy_starts_from_the_same_variables():
    system = allocator_variables("system", OWN, (2, 36))
    assert system == {"HOME": "/root", "GLIBC_TUNABLES": "glibc.pthread.rseq=0"}
    keep = allocator_variables("keep", OWN, (2, 36))
    assert keep == system | {
        "MALLOC_MMAP_THRESHOLD_": "4294967296",
        "MALLOC_TRIM_THRESHOLD_": "17179869184",
        "MALLOC_TOP_PAD_": "268435456",
    }


def test_what_is_not_timed_has_huge_pages_unless_the_user_chose():
    assert with_huge_pages(OWN, (2, 36)) == OWN | {"GLIBC_TUNABLES": f"{OWN['GLIBC_TUNABLES']}:glibc.malloc.hugetlb=1"}
    assert with_huge_pages({}, (2, 36)) == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
    chosen = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    assert with_huge_pages(chosen, (2, 36)) == chosen
    assert with_huge_pages({}, (2, 34)) == with_huge_pages({}, None) == {}


def test_huge_pages_spare_page_faults(tmp_path):
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    if not setting.exists() or "[never]" in setting.read_text() or (glibc_version() or ()) < (2, 35):
        pytest.skip("this system has no huge pages for malloc")

    def faults(environment):
        script = (
            "import ctypes, resource; libc = ctypes.CDLL(None); libc.malloc.restype = ctypes.c_void_p; "
            "before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt; "
            "libc.memset(ctypes.c_void_p(libc.malloc(ctypes.c_size_t(2**26))), 1, ctypes.c_size_t(2**26)); "
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        return int(done.stdout)

    command = worker_command(load("numpy"), tmp_path, 1, "cpu")
    assert faults(command.environment) < 2**26 / 4096 / 4
    assert faults(worker_command(load("numpy"), tmp_path, 1, "cpu", allocator="system").environment) > 2**26 / 4096 / 2


def test_a_glibc_that_refuses_a_high_threshold_gets_another_variable():
    keep = allocator_variables("keep", {}, (2, 31))
    assert keep["MALLOC_MMAP_MAX_"] == "0"
    assert "MALLOC_MMAP_THRESHOLD_" not in keep


def test_another_c_library_is_left_alone():
    assert allocator_variables("keep", OWN, None) == OWN


def test_a_system_without_glibc_is_told_that_the_policy_has_no_effect(monkeypatch, port):
    from xverify.processes import allocator
    from xverify.reference.request import resolve

    assert resolve(port, ["numpy"])[0].notes == ()
    monkeypatch.setattr(allocator, "glibc_version", lambda: None)
    (note,) = resolve(port, ["numpy"])[0].notes
    assert note.startswith("--allocator has no effect here")


@pytest.mark.slow
@pytest.mark.skipif(glibc_version() is None, reason="the policy sets variables of glibc")
def test_kept_memory_has_no_faults_and_the_system_has_those_of_a_plain_script(xverify, tmp_path, plain_faults):
    folder = write_folder(tmp_path / "port", ("numpy",), model=MODEL)
    faults = {}
    for policy in ("keep", "system"):
        file = tmp_path / f"{policy}.json"
        calls = ("--warmup", 4, "--rerun", 16, "--details")
        done = xverify("run", folder, "--subjects", "numpy", *calls, "--allocator", policy, "--json", file)
        (run,) = json.loads(file.read_text())["rows"][0]["speed"]["launches"]
        faults[policy] = run["faults_per_call"]
        assert f"Memory: --allocator {policy}: " in done.out
        assert f"page faults a call: numpy {faults[policy]:,.0f}" in done.out
        assert json.loads(file.read_text())["settings"]["allocator"] == policy
    assert faults["keep"] < 100
    # The number of huge pages, each of which saves 511 faults, depends on where the system put each process's memory.
    plain = plain_faults(folder, SCRIPT)
    assert plain / 2 < faults["system"] < plain * 2
    assert faults["system"] > 2000
    differs = xverify("diff", tmp_path / "keep.json", tmp_path / "system.json")
    assert differs.code == 2
    assert "allocator was 'keep', is 'system'" in differs.err
    older = json.loads((tmp_path / "keep.json").read_text())
    del older["settings"]["allocator"]
    (tmp_path / "older.json").write_text(json.dumps(older))
    assert "allocator was 'unstated', is 'keep'" in xverify("diff", tmp_path / "older.json", tmp_path / "keep.json").err


@pytest.fixture
def plain_faults(tmp_path):
    """The page faults a call of a script that has nothing of xverify."""
    import subprocess
    import sys

    def call(folder, script):
        (tmp_path / "numpy_model.py").write_text((folder / "numpy.py").read_text())
        (tmp_path / "script.py").write_text(script)
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py", tmp_path], capture_output=True, text=True, check=True
        )
        return float(done.stdout)

    return call
