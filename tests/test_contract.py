"""The order of the packages, and who may import a framework: the contract in pyproject.toml, and that it sees what breaks it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of the package as it is installed: models/ and weights/ are inside. An editable install has them outside."""
    folder = tmp_path_factory.mktemp("contract")
    ignored = shutil.ignore_patterns("__pycache__", "models", "weights")
    shutil.copytree(ROOT / "xverify", folder / "xverify", ignore=ignored)
    for name in ("models", "weights"):
        shutil.copytree(ROOT / name, folder / "xverify" / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def lint(tree):
    command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable]
    program = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports_command; lint_imports_command()"
    )
    arguments = ["--config", "pyproject.toml", "--no-cache"]
    done = subprocess.run([*command, "-c", program, *arguments], cwd=tree, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_the_contract_is_kept(tree):
    code, said = lint(tree)
    assert code == 0, said
    assert "5 kept, 0 broken" in said


@pytest.mark.parametrize(
    ("module", "statement", "says"),
    [
        ("results/records.py", "from ..engine import run", "xverify.results is not allowed to import xverify.engine"),
        (
            "workload/spec.py",
            "from ..report import terminal",
            "xverify.workload is not allowed to import xverify.report",
        ),
        ("weights/npz.py", "from ..engine import run", "xverify.weights is not allowed to import xverify.engine"),
        ("reference/request.py", "import torch", "xverify.reference.request -> torch"),
        ("framework/adapter.py", "import greenlet", "xverify.framework.adapter -> greenlet"),
        ("environments/store.py", "def late():\n    import jittor", "xverify.environments.store -> jittor"),
        ("engine/run.py", "from ..replay import forward", "xverify.engine.run -> xverify.replay.forward"),
        ("processes/worker.py", "from ..replay import forward", "xverify.processes.worker -> xverify.replay.forward"),
        (
            "replay/forward.py",
            "from ..explain import explanation",
            "xverify.replay is not allowed to import xverify.explain",
        ),
        (
            "float64/stepping.py",
            "from ..replay import tensors",
            "xverify.float64 is not allowed to import xverify.replay",
        ),
        ("engine/run.py", "from ..worker import state", "xverify.engine.run -> xverify.worker.state"),
        ("worker/state.py", "import rich", "xverify.worker.state -> rich"),
        ("verdict/limits.py", "from scipy import stats", "xverify.verdict.limits -> scipy"),
        (
            "replay/graph/values.py",
            "def late():\n    from .judge import noise",
            "xverify.replay.graph.values is not allowed to import xverify.replay.graph.judge",
        ),
        (
            "replay/graph/judge/noise.py",
            "from ..explain import ranking",
            "xverify.replay.graph.judge is not allowed to import xverify.replay.graph.explain",
        ),
        ("novelty/__init__.py", "", "novelty"),  # a package that has no place in the order
    ],
)
def test_a_forbidden_import_is_seen(tree, module, statement, says):
    file = tree / "xverify" / module
    text = file.read_text() if file.exists() else None
    file.parent.mkdir(exist_ok=True)
    file.write_text(f"{text or ''}\n{statement}\n")
    try:
        code, said = lint(tree)
    finally:
        if text is None:
            shutil.rmtree(file.parent)
        else:
            file.write_text(text)
    assert code == 1
    assert says in " ".join(said.split())
