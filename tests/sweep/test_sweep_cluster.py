"""xverify sweep on Dask clusters of this machine, which listen on 127.0.0.1 only: lost machines, unfit ones, files that travel."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from conftest import FAULTY, write_folder

from xverify import __version__
from xverify.errors import UsageError, XverifyError
from xverify.results import file as result_file
from xverify.results.file import read
from xverify.sweep import machines, matrix, planning
from xverify.sweep.cell import failed
from xverify.sweep.machines import Machine
from xverify.sweep.sharing import Place, fetch, send
from xverify.sweep.store import State, Store
from xverify.weights import load_file, save_file

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow

FAST = ("--warmup", "1", "--rerun", "3", "--cases", "1")


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest"))


@pytest.fixture
def cluster(monkeypatch, tmp_path):
    """Two workers in processes of their own."""
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", str(FAULTY))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, resources={"machine": 1}
    ) as made:
        yield made


@pytest.fixture
def threads():
    """A client of a cluster whose workers are threads of this process."""
    with distributed.LocalCluster(
        n_workers=8, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address=None,
        resources={"machine": 1},
    ) as made, distributed.Client(made, set_as_default=False) as client:  # fmt: skip
        yield client


def without_times(result):
    """What must not depend on where a cell ran."""
    errors = [
        (row.subject, row.status, row.error.verdict, row.error.rel_rms, row.error.noise_ratio) for row in result.rows
    ]
    return result.verdict, errors, result.weights.digest, result.inputs.digest, result.settings.batch


def test_a_lost_machine_loses_no_cell_and_results_are_those_of_this_machine(xverify, folder, tmp_path, cluster):
    asked = ("--subjects", "numpy,honest", "--batch", "1,2,3", "--warmup", "1", "--rerun", "100000", "--cases", "1")
    command = [sys.executable, "-m", "xverify", "sweep", str(folder), *asked, "--scheduler", cluster.scheduler_address]
    pids = [worker.pid for worker in cluster.workers.values()]
    here = tmp_path / "there"
    here.mkdir()
    with subprocess.Popen(command, cwd=here, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            if line.startswith("cell 2 of 3"):
                break
        time.sleep(1.5)
        os.kill(pids[0], signal.SIGKILL)
        reader = threading.Thread(target=process.stderr.read, daemon=True)
        reader.start()
        out = process.stdout.read()
        assert process.wait(120) == 0, out
    assert "PASS 3 cells: 3 PASS" in out
    assert xverify("sweep", folder, *asked).code == 0
    theirs, mine = (
        [without_times(read(path)) for path in sorted(place.glob("results/*.json"))]
        for place in (here, tmp_path / "here")
    )
    assert theirs == mine
    assert len(theirs) == 3
    assert all(read(path).host.name for path in here.glob("results/*.json"))
    again = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert "nothing was run" in again.stdout


@pytest.mark.parametrize("end", ["whole", "interrupted"])
def test_a_local_cluster_listens_nowhere_and_leaves_nothing(folder, tmp_path, monkeypatch, end):
    """Whoever can reach a port of Dask runs code as the user of the sweep."""
    (tmp_path / "there").mkdir()
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", str(FAULTY))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    rerun = "200000" if end == "interrupted" else "3000"
    asked = ("--subjects", "numpy,honest", "--batch", "1,2,3", "--warmup", "1", "--rerun", rerun, "--cases", "1")
    command = [sys.executable, "-m", "xverify", "sweep", str(folder), *asked, "--cluster", "local:2"]
    listening, most = set(), 0
    with subprocess.Popen(
        command, cwd=tmp_path / "there", stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        parent, begun = psutil.Process(process.pid), time.monotonic()
        while process.poll() is None and not (end == "interrupted" and most >= 4):
            tree = [parent, *parent.children(recursive=True)]
            most = max(most, len(tree))
            pids = {each.pid for each in tree}
            listening |= {
                each.laddr for each in psutil.net_connections("inet") if each.status == "LISTEN" and each.pid in pids
            }
            assert time.monotonic() - begun < 120
            time.sleep(0.05)
        if end == "interrupted":
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == (3 if end == "interrupted" else 0), out + err
    assert most >= 4  # the command, two cells at once, and a subject
    assert listening == set()
    assert "Traceback" not in err
    assert "distributed" not in err
    assert os.listdir(tmp_path / "there") == ["results"]
    assert [each for each in os.listdir(tmp_path / "scratch") if not each.endswith(".lock")] == []
    assert [each for each in tree if each.is_running() and each.status() != psutil.STATUS_ZOMBIE] == []


def test_files_travel_through_a_place(folder, tmp_path, cluster):
    shapes = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}
    np.savez(tmp_path / "w.npz", **{name: np.full(shape, 0.1, np.float32) for name, shape in shapes.items()})
    here = tmp_path / "there"
    here.mkdir()
    command = [sys.executable, "-m", "xverify", "sweep", str(folder), "--subjects", "numpy,honest", *FAST]
    command += ["--weights", str(tmp_path / "w.npz"), "--scheduler", cluster.scheduler_address]
    command += ["--share", (tmp_path / "place").as_uri()]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [path] = (here / "results").glob("*.json")
    result = read(path)
    assert result.settings.model.startswith(str(tmp_path / "cache"))
    assert result.settings.weights.startswith(str(tmp_path / "cache"))
    assert [each.name for each in (tmp_path / "place" / "results").iterdir()] == [path.name]


def test_doctor_lists_the_machines(xverify, cluster):
    done = xverify("doctor", "--cluster", cluster.scheduler_address)
    assert done.code == 0, done.err
    assert "2 machines, with the same versions" in done.out
    assert done.out.count("numpy") >= 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--scheduler", "tcp://127.0.0.1:1"), "no scheduler of Dask answers at tcp://127.0.0.1:1"),
        (("--cluster", "moon:2"), "--cluster moon:2: write local:2, slurm:8 or ssh:node1,node2"),
        (("--cluster", "local:0"), "--cluster local:0"),
        (("--cluster", "ssh"), "name the machines"),
    ],
)
def test_a_cluster_that_is_not_there_is_one_line(xverify, folder, arguments, says):
    done = xverify("sweep", folder, "--subjects", "numpy", *arguments, *FAST)
    assert done.code == 2
    assert says in done.err


def machine(**versions):
    return Machine("node", "cpu", 2, 8.0, "Linux", {"xverify": __version__, "torch": "2.13.0", **versions}, {})


@pytest.mark.parametrize(
    ("found", "resources", "says"),
    [
        ({}, {}, "the cluster has no workers: start one"),
        ({"a": machine()}, {"a": {}}, "a does not announce its machine"),
        (
            {"a": machine(), "b": machine(torch="2.12.0")},
            {"a": {"machine": 1}, "b": {"machine": 1}},
            r"different versions: torch is 2.13.0 on node \(a\) and 2.12.0 on node \(b\)",
        ),
        (
            {"a": machine(), "b": machine(jittor="1.3.10")},
            {"a": {"machine": 1}, "b": {"machine": 1}},
            "jittor is absent on node",
        ),
        ({"a": machine(xverify="9.9")}, {"a": {"machine": 1}}, "the workers have xverify 9.9"),
    ],
)
def test_machines_that_do_not_fit_are_told_before_anything_runs(found, resources, says):
    with pytest.raises(UsageError, match=says):
        machines.check(found, resources)


def test_a_worker_that_does_not_see_the_results_is_told(threads, tmp_path, monkeypatch):
    from xverify.sweep.cluster import Cluster

    monkeypatch.setattr(machines, "sees", lambda folder, name: False)
    with pytest.raises(UsageError, match=r"does not see .*--share"):
        Cluster(threads, Store(tmp_path / "results"))


def planned_cells(count):
    cells = matrix.combined({"model": ["mlp"], "seed": list(range(count))}, {"subjects": ("torch:eager",)})
    return planning.checked(cells, planning.plan(cells))


def write(planned, path):
    seed = planned.settings.seed
    if seed % 7 == 3:
        raise XverifyError(f"no memory for seed {seed}")
    result = failed(planned, "simulated", "crashed" if seed % 7 == 5 else "unsupported")
    result_file.write(replace(result, created=str(time.monotonic_ns())), path)


def test_many_cells_on_eight_machines(threads, tmp_path):
    """A cell without a result gets one that says why, and one that crashed is run once more."""
    from xverify.sweep.cluster import Cluster

    store, cells = Store(tmp_path / "results"), planned_cells(70)
    done = Cluster(threads, store).sweep(cells, run_one=write)
    assert done.ran == 70 + 10
    assert all(store.state(each) == State.DONE for each in cells)
    reasons = {store.result(each).rows[0].reason for each in cells}
    assert reasons == {"simulated", *(f"no memory for seed {seed}" for seed in range(3, 70, 7))}
    assert Cluster(threads, store).sweep(cells, run_one=write).ran == 0


def test_a_folder_and_a_file_travel_once_and_whole(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "w.npz").write_bytes(b"weights")
    place = Place(str(tmp_path / "place"))
    [cell] = matrix.combined({"model": [str(folder)]}, {"weights": str(tmp_path / "w.npz")})
    sent = send(cell, place)
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "place").rglob("*.py")}
    assert send(cell, place) == sent
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "place").rglob("*.py")} == times
    got = fetch(sent, place)
    assert got.model.startswith(str(tmp_path / "cache"))
    assert (folder / "numpy.py").read_text() == Path(got.model, "numpy.py").read_text()
    assert Path(got.settings.weights).read_bytes() == b"weights"
    with pytest.raises(UsageError, match="--share moon://x"):
        Place("moon://x")
    assert json.loads(json.dumps(sent.folder)) == sent.folder


@pytest.mark.parametrize("named", ["shards", "shards/model.safetensors.index.json"])
def test_weights_in_several_files_travel_whole(folder, tmp_path, monkeypatch, named):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "shards").mkdir()
    shards = {f"w{k}": f"model-0000{k}-of-00002.safetensors" for k in (1, 2)}
    for k, (name, file) in enumerate(shards.items()):
        save_file({name: np.full(3, k, np.float32)}, tmp_path / "shards" / file)
    index = json.dumps({"metadata": {}, "weight_map": shards})
    (tmp_path / "shards" / "model.safetensors.index.json").write_text(index)
    place = Place(str(tmp_path / "place"))
    [cell] = matrix.combined({"model": [str(folder)]}, {"weights": str(tmp_path / named)})
    got = fetch(send(cell, place), place)
    assert got.settings.weights.startswith(str(tmp_path / "cache"))
    assert {name: array.tolist() for name, array in load_file(got.settings.weights).items()} == {
        "w1": [0] * 3,
        "w2": [1] * 3,
    }
