"""Workers that are forked from one import of their framework: each is as one that imported it itself."""

import os
import signal
import sys

import psutil
import pytest
from conftest import MODEL, cli, write_folder

from xverify import host
from xverify.errors import Crashed
from xverify.framework import discovery
from xverify.messages import Block, Build
from xverify.processes import forking
from xverify.processes.worker import Worker

pytestmark = pytest.mark.skipif(not forking.has_pidfd(), reason="a system on which no worker is forked")

# A framework of which every import is noted. It waits for as many imports at once as it is told, and fails when told to.
FRAMEWORK = """
import os, pathlib, time
NOTED = pathlib.Path(os.environ["NOTED"])
(NOTED / f"import-{os.getpid()}").write_text(os.environ.get("SETTING", ""))
DRAWN = 0
deadline = time.monotonic() + 20
while len(list(NOTED.iterdir())) < int(os.environ.get("AT_ONCE", "0")):
    assert time.monotonic() < deadline, "nothing else is imported meanwhile"
    time.sleep(0.01)
if os.environ.get("BROKEN"):
    raise RuntimeError("the framework is broken")
"""
ADAPTER = """
from xverify.frameworks.numpy.adapter import Adapter as Numpy, eager

class Adapter(Numpy):
    name = "NAME"
    needs = {"NAME": "framework_NAME"}
    forks = FORKS
    implicit_mode = None
    modes = {"eager": eager, "other": eager, "third": eager}

    def __init__(self, threads, device):
        import framework_NAME
        super().__init__(threads, device)
"""
TWO = "numpy,forks:eager,forks:other"


@pytest.fixture
def noted(tmp_path, monkeypatch):
    """A folder in which every import of a framework leaves a file."""
    for name, forks in (("forks", True), ("first", False), ("second", False), ("third", False)):
        for place, text in (("adapters", ADAPTER), ("site", FRAMEWORK)):
            (tmp_path / place).mkdir(exist_ok=True)
            file = name if place == "adapters" else f"framework_{name}"
            (tmp_path / place / f"{file}.py").write_text(text.replace("NAME", name).replace("FORKS", str(forks)))
    folder = tmp_path / "noted"
    folder.mkdir()
    monkeypatch.setenv("NOTED", str(folder))
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", str(tmp_path / "adapters"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"), prepend=os.pathsep)
    write_folder(tmp_path / "port", ("numpy", "forks", "first", "second", "third"))
    return folder


def run(place, subjects, *options):
    return cli(place, "run", place / "port", "--subjects", subjects, *options, frameworks=place / "adapters")


def imports(noted):
    return sorted(noted.glob("import-*"))


def verdicts(done):
    assert done.result is not None, done.err
    return [row["error"] and row["error"]["verdict"] for row in done.result["rows"]]


def test_a_run_without_timing_imports_a_framework_once_for_all_its_modes(noted, tmp_path):
    done = run(tmp_path, TWO, "--no-timing")
    assert verdicts(done) == ["IDENTICAL"] * 3
    assert len(imports(noted)) == 1


@pytest.mark.parametrize(
    "options", [("--warmup", 1, "--rerun", 4), ("--no-timing", "--memory", 4)], ids=["timed", "limited"]
)
def test_a_process_that_is_timed_or_limited_imports_by_itself(noted, tmp_path, options):
    run(tmp_path, TWO, *options)
    assert len(imports(noted)) == 2


def test_a_run_has_the_figures_of_one_without_forks(noted, tmp_path, monkeypatch):
    within = run(tmp_path, TWO, "--no-timing", "--seed", 3)
    monkeypatch.setattr(forking, "can_fork", lambda *_: False)
    apart = run(tmp_path, TWO, "--no-timing", "--seed", 3)
    assert len(imports(noted)) == 3
    assert [row["error"] for row in within.result["rows"]] == [row["error"] for row in apart.result["rows"]]


@pytest.mark.slow
@pytest.mark.parametrize(("subject", "task"), [("tensorflow:graph", "forward,train"), ("jittor", "forward")])
def test_a_framework_computes_the_same_in_a_fork(tmp_path, monkeypatch, subject, task):
    if host.missing(discovery.parse_subject(subject)[0]):
        pytest.skip("the framework is not installed")
    options = ("--task", task, "--subjects", f"torch:eager,{subject}", "--no-timing")
    within = cli(tmp_path, "run", "mlp", *options).result
    monkeypatch.setattr(forking, "can_fork", lambda *_: False)
    apart = cli(tmp_path, "run", "mlp", *options).result
    assert within["weights"]["digest"] == apart["weights"]["digest"]
    for one, other in zip(within["rows"], apart["rows"], strict=True):
        for key in ("status", "reason", "error", "training"):
            assert one[key] == other[key]
        assert one["status"] == "ok"


def test_all_frameworks_are_imported_side_by_side(noted, tmp_path, monkeypatch):
    monkeypatch.setattr("xverify.host.cores", lambda: 3)
    monkeypatch.setenv("AT_ONCE", "3")
    done = run(tmp_path, "numpy,first,second,third", "--no-timing")
    assert verdicts(done) == ["IDENTICAL"] * 4, done.err


def test_an_import_that_fails_is_told_as_without_forks(noted, tmp_path, monkeypatch):
    monkeypatch.setenv("BROKEN", "1")
    done = run(tmp_path, "numpy,forks:eager", "--no-timing")
    assert done.row("forks:eager")["status"] == "failed"
    assert "the framework is broken" in done.row("forks:eager")["reason"]


# -- one worker -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fork(noted, tmp_path):
    templates, workers = forking.Templates(tmp_path), []
    before = psutil.Process().children()  # what other tests of this test run keep until its end

    def fork(name="worker"):
        (tmp_path / name).mkdir()
        adapter = discovery.load("forks")
        workers.append(
            Worker(adapter, sys.executable, tmp_path / name, 1, "cpu", 60.0, patient=True, templates=templates)
        )
        workers[-1].start()
        return workers[-1]

    fork.templates = templates
    yield fork
    for worker in workers:
        worker.close()
    templates.close()
    assert psutil.Process().children() == before


def test_a_worker_that_is_killed_is_told_with_its_signal(fork):
    worker, other = fork(), fork("other")
    os.kill(worker.pid, signal.SIGKILL)
    with pytest.raises(Crashed, match="killed by SIGKILL"):
        worker.ask(Block(0, 1))
    assert psutil.pid_exists(other.pid)
    worker.close()
    assert not psutil.pid_exists(worker.pid)


def test_workers_draw_other_numbers(fork, tmp_path):
    draws = MODEL.replace("def build():", "def build():\n    open('drawn', 'w').write(str(np.random.rand()))")
    folder = write_folder(tmp_path / "draws", ("forks",), model=draws)
    drawn = set()
    for name in ("a", "b"):
        fork(name).ask(Build(str(folder), {}, None, {}, {"x": None}, {"y": None}))
        drawn.add((tmp_path / name / "drawn").read_text())
    assert len(drawn) == 2


def test_a_template_that_was_killed_is_replaced(fork, noted):
    fork().close()
    [template] = fork.templates.of.values()
    os.kill(template.process.pid, signal.SIGKILL)
    fork("second").close()  # it imports by itself
    fork("third").close()
    fork("fourth").close()
    assert len(imports(noted)) == 3


def test_other_variables_of_the_environment_are_those_of_another_template(fork, noted, monkeypatch):
    fork().close()
    monkeypatch.setenv("SETTING", "other")
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "it differs from test to test")
    fork("second").close()
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "of the next test")
    fork("third").close()
    assert sorted(each.read_text() for each in imports(noted)) == ["", "other"]
    assert len(fork.templates.of) == 1, "the first one has no workers, and nobody will ask for it"
