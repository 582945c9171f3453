"""What a sweep on a cluster writes elsewhere: a shared folder, in which no link is followed, and the script of a job of Slurm."""

import os
import sys
from types import SimpleNamespace

import pytest
from conftest import write_folder

from xverify.errors import UsageError
from xverify.sweep import cluster, matrix
from xverify.sweep.sharing import RESULTS, SENT, Place, send


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port")


@pytest.fixture
def mine(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    return tmp_path / "mine"


def refused(xverify, *command):
    done = xverify("sweep", *command, "--subjects", "numpy", "--no-timing", "--cluster", "local:1")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    return done.err


@pytest.mark.parametrize("name", [SENT, RESULTS])
@pytest.mark.parametrize("url", [False, True])
def test_a_link_in_a_shared_folder_is_refused(xverify, folder, mine, tmp_path, name, url):
    place = tmp_path / "place"
    place.mkdir()
    (place / name).symlink_to(mine)
    error = refused(xverify, folder, "--share", place.as_uri() if url else place)
    assert f"--share: {place / name} is a link, and is never followed" in error
    assert sorted(os.listdir(mine)) == ["notes.txt"]


def test_a_link_out_of_the_model_folder_is_not_sent(folder, mine, tmp_path):
    pytest.importorskip("fsspec")
    (folder / "data.txt").symlink_to(mine / "notes.txt")
    [cell] = matrix.combined({"model": [str(folder)]}, {})
    with pytest.raises(UsageError, match=r"data.txt leads out of the model folder"):
        send(cell, Place(str(tmp_path / "place")))
    assert not list(tmp_path.glob("place/**/data.txt"))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_deeper_link_in_a_shared_folder_is_not_followed(folder, mine, tmp_path, kind):
    pytest.importorskip("fsspec")
    place = Place(str(tmp_path / "place"))
    [cell] = matrix.combined({"model": [str(folder)]}, {})
    sent = send(cell, place)
    model = tmp_path / "place" / SENT / sent.folder.partition("/")[0]
    [file] = model.rglob("spec.py")
    if kind == "folder":
        model.rename(tmp_path / "other")
        model.symlink_to(mine)
    else:
        file.unlink()
        file.symlink_to(mine / "new.py")
    with pytest.raises(UsageError, match="is a link, and is never followed"):
        send(cell, place)
    assert sorted(os.listdir(mine)) == ["notes.txt"]


def test_a_shared_folder_takes_the_place_of_nothing_that_is_read(xverify, folder, tmp_path):
    assert "is no folder" in refused(xverify, folder, "--share", folder / "spec.py")
    (folder / SENT).mkdir()
    assert "is in the folder that this command reads as MODEL" in refused(xverify, folder, "--share", folder)
    inside = write_folder(tmp_path / "place" / SENT / "port")
    assert "holds what this command reads as MODEL" in refused(xverify, inside, "--share", tmp_path / "place")


@pytest.mark.parametrize("number", ["0", "-1", "²", "1" * 5000, "10000", "1.5", ""])
@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_a_number_of_workers_that_cannot_be_is_refused(xverify, folder, kind, number):
    pytest.importorskip("distributed")
    done = xverify("sweep", folder, "--subjects", "numpy", "--cluster", f"{kind}:{number}")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1), done
    assert "--cluster" in done.err


@pytest.mark.parametrize("own", [None, [], ["module load gcc"]])
def test_no_value_of_a_variable_stands_in_the_script_of_a_job(monkeypatch, own):
    """Its lines are the user's, and one of xverify's; quotes and newlines of a variable could end a line and begin a command."""
    dask = pytest.importorskip("dask")
    jobs = []

    class Cluster:
        def __init__(self, **settings):
            jobs.append(settings)

        def scale(self, jobs):
            self.jobs = jobs

    monkeypatch.setitem(sys.modules, "dask_jobqueue", SimpleNamespace(SLURMCluster=Cluster, __spec__=object()))
    for name in ("XVERIFY_FRAMEWORKS", "PYTHONSAFEPATH", "PYTHONPATH", "MINE"):
        monkeypatch.setenv(name, f'a\'\nrm -r "$HOME"; {name} `b` $(c)')
    with dask.config.set({"jobqueue.slurm.job-script-prologue": own}):
        made, count = cluster._cluster("slurm:3")
    [job] = jobs
    assert (made.jobs, count) == (3, 3)
    assert job.pop("job_script_prologue") == [*(own or []), "export PYTHONSAFEPATH=1"]
    assert job == {"processes": 1, "worker_extra_args": ["--resources", "machine=1", "--nthreads", "1"]}
