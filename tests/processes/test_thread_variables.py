"""A worker computes with as many threads as the run asks for, whatever variables its parent was started with."""

import pytest

from xverify.framework.discovery import load
from xverify.processes.command import THREADS, worker_command


@pytest.fixture(autouse=True)
def one_thread(monkeypatch):
    for name in THREADS:
        monkeypatch.setenv(name, "1")  # as in the processes of a Dask cluster


def test_only_an_adapter_sets_the_number_of_threads_of_libraries(tmp_path):
    variables = worker_command(load("numpy"), tmp_path, 3, "cpu").environment
    assert set(THREADS) & set(variables) == set()
    variables = worker_command(load("jittor"), tmp_path, 3, "cpu").environment
    assert {name: variables.get(name) for name in THREADS} == dict.fromkeys(THREADS) | {"OMP_NUM_THREADS": "3"}
