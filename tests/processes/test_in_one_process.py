"""Workers of tests that answer within one process: they answer what processes answer, and only where they can."""

import os
import sys

import pytest
from conftest import cli, write_folder
from helpers.inprocess import COMPUTE, one_process

from xverify.framework import discovery
from xverify.processes.worker import Worker

OPTIONS = ("--warmup", 1, "--rerun", 8, "--seed", 3)
# Code of a model that keeps the numbers of the processes in which it is built.
NOTES = "import os\nwith open({file!r}, 'a') as file:\n    file.write(f'{{os.getpid()}} ')\n"


def test_a_run_has_the_verdicts_and_digests_of_one_with_processes(tmp_path):
    folder = write_folder(tmp_path / "port", ("numpy", "honest", "swapped"))
    apart = cli(tmp_path, "run", folder, "--subjects", "numpy,honest,swapped", *OPTIONS)
    with one_process():
        within = cli(tmp_path, "run", folder, "--subjects", "numpy,honest,swapped", *OPTIONS)
    assert (within.code, apart.code) == (1, 1)
    assert within.result["weights"]["digest"] == apart.result["weights"]["digest"]
    for one, other in zip(within.result["rows"], apart.result["rows"], strict=True):
        assert (one["error"], one["speed"]["calls"]) == (other["error"], other["speed"]["calls"])


@pytest.mark.parametrize(("name", "processes"), [("honest", 1), ("killed", 2)])
def test_an_adapter_that_ends_its_process_has_one(tmp_path, name, processes):
    assert (name in COMPUTE) == (processes == 1)
    folder = write_folder(tmp_path / "port", ("numpy", name))
    noted = tmp_path / "noted"
    (folder / f"{name}.py").write_text(NOTES.format(file=str(noted)) + (folder / f"{name}.py").read_text())
    with one_process():
        cli(tmp_path, "run", folder, "--subjects", f"numpy,{name}", *OPTIONS)
    [built] = set(noted.read_text().split())
    assert (int(built) == os.getpid()) == (processes == 1)


def test_afterwards_workers_are_processes_again(tmp_path, faulty_frameworks):
    with one_process():
        pass
    (tmp_path / "worker").mkdir()
    with Worker(discovery.load("honest"), sys.executable, tmp_path / "worker", 1, "cpu", 60.0) as worker:
        assert worker.pid != os.getpid()
