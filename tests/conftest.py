"""Shared fixtures: a tiny model of numpy's, the command line as a user calls it, and adapters with planted faults."""

from __future__ import annotations

import gc
import json
import os
import shutil
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from helpers.commandline import Ended, called, forked, hear_interrupts, started
from helpers.inprocess import one_process
from helpers.installedplugin import as_installed
from helpers.marks import may_match, wrong_marks
from helpers.twice import pytest_runtest_protocol  # noqa: F401  pytest finds it here

from xverify.selftest.planted import _work as planted
from xverify.timing.noise import Gate
from xverify.workload.optimizers import optimizer

os.environ.pop("COLUMNS", None)  # pytest-xdist sets it; commands would make their tables as narrow
os.environ.pop(
    "CI", None
)  # a server for tests sets it; pytest then prints long messages whole, and tests read what it prints

FAULTY = Path(__file__).parent / "faulty"
PLANTED = Path(planted.__file__).parent

# Every optimizer, with the settings that change its formula.
OPTIMIZERS = [
    optimizer("sgd"),
    optimizer("sgd", momentum=0.9),
    optimizer("sgd", momentum=0.9, nesterov=True, weight_decay=0.01),
    optimizer("adam"),
    optimizer("adam", weight_decay=0.01),
    optimizer("adamw"),
    optimizer("rmsprop"),
    optimizer("rmsprop", weight_decay=0.01),
    optimizer("adagrad"),
    optimizer("adagrad", weight_decay=0.01),
    optimizer("lion"),
    optimizer("lion", weight_decay=0.1),
    optimizer("adafactor"),
    optimizer("adafactor", weight_decay=0.1),
]

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3))})
"""

MODEL = """
import numpy as np

class Net:
    def __init__(self):
        self.weights = {
            "fc1.weight": np.zeros((6, 8), np.float32), "fc1.bias": np.zeros(6, np.float32),
            "fc2.weight": np.zeros((3, 6), np.float32), "fc2.bias": np.zeros(3, np.float32),
        }

    def __call__(self, x):
        w = self.weights
        h = np.tanh(x @ w["fc1.weight"].T + w["fc1.bias"])
        return h @ w["fc2.weight"].T + w["fc2.bias"]

def build():
    return Net()
"""

# The same model in torch.
TORCH_MODEL = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x):
        return self.fc2(self.fc1(x).tanh())


def build():
    return Net()
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every",
        type=int,
        default=1,
        metavar="N",
        help="run one N-th of the slow tests; the commit decides which one",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files none of whose tests has the marks of ``-m``."""
    asked = config.getoption("markexpr")
    if asked and collection_path.match("test_*.py") and not may_match(asked, collection_path.read_text()):
        return True
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse marks that do not fit together. With --every, leave out slow tests."""
    wrong = [f"{item.nodeid}: {reason}" for item in items if (reason := wrong_marks(_marks(item)))]
    if wrong:
        raise pytest.UsageError(*wrong)
    every = config.getoption("every")
    slow = [item for item in items if item.get_closest_marker("slow") and not item.get_closest_marker("long")]
    left_out = _left_out(slow, every, _commit() % every) if every > 1 else []
    if left_out:
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_collection_finish() -> None:
    """Let no collection of garbage look at the modules of all tests again: each timed round starts one, which took 0.1 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # at the end of Python, duckdb reports objects that no collection looked at


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def _left_out(slow: list[pytest.Item], every: int, part: int) -> list[pytest.Item]:
    """The slow tests of all other parts. Those of a file go to the parts in turn, and each file begins with another part."""
    turns = Counter[Path]()
    found = []
    for item in slow:
        place = zlib.crc32(item.path.name.encode()) + turns[item.path]
        turns[item.path] += 1
        if place % every != part:
            found.append(item)
    return found


def _commit() -> int:
    """The number of the commit that is checked out; 0 where there is none."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=FAULTY, capture_output=True, text=True, check=False)
    return int(done.stdout.strip() or "0", 16)


def write_folder(path: Path, frameworks: tuple[str, ...] = ("numpy",), spec: str = SPEC, model: str = MODEL) -> Path:
    """A model folder with the same numpy model for each of these frameworks."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "spec.py").write_text(spec)
    for framework in frameworks:
        (path / f"{framework}.py").write_text(model)
    return path


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test adds to the results that the user's own commands kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def port(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "port")


@dataclass
class Outcome(Ended):
    """How a command ended. result: what its result file holds, when it wrote one."""

    result: dict[str, Any] | None

    def row(self, subject: str) -> dict[str, Any]:
        assert self.result is not None, self.err
        return next(row for row in self.result["rows"] if row["subject"] == subject)


def signal_while_timing(cwd: Path, folder: Path, sent: int, *options: str) -> int:
    """Run numpy and "honest" of a model folder, send a signal when their first round is timed, and return the exit code."""
    command = [sys.executable, "-m", "xverify", "run", str(folder), "--subjects", "numpy,honest", "--rerun", "10000000"]
    with subprocess.Popen(
        [*command, *options],
        env={**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        preexec_fn=hear_interrupts,
    ) as process:
        for line in process.stderr:
            if line.startswith("timing: round 1 "):
                process.send_signal(sent)
                break
        process.stderr.read()
        return process.wait(60)


@contextmanager
def small_disk(place: Path, size: str) -> Iterator[Path]:
    """A disk of this size, for example "16k". The test is skipped where the system does not let it make one."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let the test make a small disk")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def cli(
    folder: Path, *arguments: object, timeout: float = 300, frameworks: Path = FAULTY, process: bool = False
) -> Outcome:
    """Run the command line in an empty directory within a folder.

    process: start a process for it. By default, it is called within this one; its workers are processes in any case.
    timeout: the most seconds of that process.
    """
    command = [str(argument) for argument in arguments]
    file = folder / "result.json"
    file.unlink(missing_ok=True)
    if command[0] == "run" and "--json" not in command:
        command += ["--json", str(file)]
    here = folder / "here"
    here.mkdir(exist_ok=True)
    variables = {"XVERIFY_FRAMEWORKS": f"{frameworks}{os.pathsep}{PLANTED}", "PYTHONSAFEPATH": "1"}
    done = started(command, here, variables, timeout) if process else called(command, here, variables)
    assert "Traceback" not in done.err, done.err
    result = json.loads(file.read_text()) if file.exists() else None
    return Outcome(done.code, done.out, done.err, result)


@pytest.fixture
def xverify(tmp_path: Path):
    """Run the command line in an empty directory; see ``cli``."""

    def call(*arguments: object, **settings: Any) -> Outcome:
        return cli(tmp_path, *arguments, **settings)

    return call


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for the files that a conversion writes."""
    path = tmp_path / "out"
    path.mkdir()
    return path


@pytest.fixture
def in_one_process() -> Iterator[None]:
    """Workers that compute with numpy answer within this process."""
    with one_process():
        yield


@pytest.fixture
def no_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """No round counts as noisy, so that a speed gets its verdict on a busy machine, too."""
    monkeypatch.setattr(Gate, "block", lambda gate, before, after: None)
    monkeypatch.setattr(Gate, "round", lambda gate, reasons: setattr(gate, "rounds", gate.rounds + 1))


@pytest.fixture(scope="module")
def browser():
    """Chromium; tests that need it are skipped where it is not installed."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    playwright = pytest.importorskip("playwright.sync_api")
    if chromium is None:
        pytest.skip("Chromium is not installed")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class TestRun:
    """A run of pytest by a user. place: the folder in which it ran."""

    __test__ = False
    code: int
    out: str
    place: Path


@pytest.fixture
def tested(tmp_path: Path):
    """Write a test beside a port of numpy's model, and run pytest there, which loads the plugin as that of an installed xverify.

    It runs in a fork of this process, which has imported everything. process: in a new process. more: environment variables.
    """
    place, site = tmp_path / "repository", as_installed(tmp_path / "site")
    write_folder(place / "port", ("numpy", "honest", "swapped", "absent", "breaks"))

    def run(test: str, *arguments: object, frameworks: Path = FAULTY, process: bool = False, **more: str) -> TestRun:
        (place / "test_port.py").write_text(test)
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GITHUB_"))}
        path = os.pathsep.join(filter(None, [str(site), str(FAULTY.parents[1]), os.environ.get("PYTHONPATH")]))
        variables |= {"PYTHONPATH": path, "XVERIFY_FRAMEWORKS": str(frameworks), **more}
        command = ["-p", "no:cacheprovider", *map(str, arguments)]
        if not process:
            with one_process():
                code, out = forked(lambda: pytest.main(command), place, variables, [str(site)])
            return TestRun(code, out, place)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *command], cwd=place, env=variables, capture_output=True, text=True,
            timeout=300, check=False, preexec_fn=hear_interrupts,
        )  # fmt: skip
        return TestRun(done.returncode, done.stdout + done.stderr, place)

    return run


@pytest.fixture
def faulty_frameworks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", f"{FAULTY}{os.pathsep}{PLANTED}")


@pytest.fixture
def scored(xverify, tmp_path):
    """Mutate a model, and return the outcome and the scores, which are also asserted to add up."""

    def run(model, subjects, *more, code=0, timeout=900):
        file = tmp_path / "score.json"
        done = xverify("mutate", model, "--subjects", subjects, "--json", file, *more, timeout=timeout)
        assert done.code == code, done.out + done.err
        scores = json.loads(file.read_text())
        assert [score["subject"] for score in scores] == subjects.split(",")
        for score in scores:
            assert score["planted"] == score["caught"] + score["untested"] + score["missed"]
        return done, scores

    return run
