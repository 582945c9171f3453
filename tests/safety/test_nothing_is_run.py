"""Nothing of the current folder is run: no module of Python, of a framework or of xverify is taken from there.

A receipt tells what is new in its folder, because it could hide what is run.
"""

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import FAULTY, TORCH_MODEL, cli, write_folder
from helpers.commandline import called
from helpers.inprocess import one_process

import xverify as package
from xverify import interpreter
from xverify.framework.discovery import load
from xverify.processes.command import worker_command
from xverify.workload.imports import ADAPTERS

FAST = ("--no-timing", "--cases", "1")
# Names of files that would hide what a child of some command imports.
HIDING = (
    *("torch", "torchvision", "xverify", "json", "numpy", "runpy", "pickle", "multiprocessing", "distributed", "dask"),
    *("importlib", "ensurepip", "venv", "pip", "socket", "subprocess", "os", "msgspec", "psutil"),
)
MARKER = "marker"


@pytest.fixture
def here(tmp_path):
    """A folder with files that write to a marker when they are imported."""
    folder = tmp_path / "here"
    folder.mkdir()
    for name in HIDING:
        (folder / f"{name}.py").write_text(f"open({str(folder / MARKER)!r}, 'a').write(__name__ + ' ')\n")
    return folder


@pytest.fixture
def unprotected(monkeypatch):
    """Python's own protection is off, which a user does not have."""
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)


@pytest.fixture
def fakes(tmp_path, monkeypatch):
    """Packages that are installed, and are imported fast."""
    place = tmp_path / "installed"
    for name, code in (("torchvision", "import torch\n"), ("torch", "")):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(place), os.environ.get("PYTHONPATH")])))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """What the commands read: a port, a result, a receipt, weights and a sweep; and another interpreter."""
    folder = tmp_path_factory.mktemp("files")
    port = write_folder(folder / "port", ("numpy", "honest"))
    write_folder(folder / "torch", ("torch",), model=TORCH_MODEL)
    with one_process():
        cli(folder, "run", port, "--subjects", "numpy,honest", *FAST, "--receipt", folder / "kept")
    (folder / "results").mkdir()
    shutil.copy(folder / "result.json", folder / "results")
    (folder / "other").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "other").chmod(0o755)
    return folder


COMMANDS = {
    "list": "list",
    "doctor": "doctor",
    "schema": "schema",
    "completion": "completion bash",
    "run": "run {port} --subjects numpy,honest --no-timing --cases 1 --json r.json",
    "run timed": "run {port} --subjects numpy,honest --warmup 1 --rerun 3 --json r.json",
    "run with a receipt": "run {port} --subjects numpy,honest --no-timing --json r.json --receipt kept",
    "run in another interpreter": "run {port} --subjects numpy,honest --no-timing --python numpy={other} --receipt kept",
    "replay": "replay {kept} --no-timing",
    "sweep": "sweep {port} --subjects numpy,honest --no-timing --cases 1",
    "report": "report {result} --html r.html",
    "explain": "explain {result}",
    "diff": "diff {result} {result}",
    "history": "history --results {results}",
    "weights digest": "weights digest {weights}",
    "weights convert": "weights convert {weights} w.safetensors",
    "env list": "env list",
    "sweep on a cluster": "sweep {port} --subjects numpy,honest --no-timing --cases 1 --cluster local:1",
}
WITH_TORCH = {
    "mutate": "mutate {torch} --subjects torch:eager",
    "optimizers": "optimizers --frameworks torch",
    "convert": "convert {torch} m.onnx",
}
CODES = {"history": 4}  # of one result


def call(command, files, here):
    names = {name: files / name for name in ("port", "torch", "kept", "results", "other")}
    names |= {"result": files / "result.json", "weights": files / "kept" / "forward" / "weights.npz"}
    words = [word.format(**names) for word in command.split()]
    return called(words, here, {"XVERIFY_FRAMEWORKS": str(FAULTY)})


def left(here):
    return (here / MARKER).read_text() if (here / MARKER).exists() else ""


@pytest.mark.usefixtures("unprotected", "fakes")
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_a_file_of_the_current_folder(files, here, name):
    if "cluster" in name:
        pytest.importorskip("distributed")
    done = call(COMMANDS[name], files, here)
    assert left(here) == ""
    assert done.code == CODES.get(name, 0), done.err


@pytest.mark.slow
@pytest.mark.usefixtures("unprotected")
@pytest.mark.parametrize("name", WITH_TORCH)
def test_no_command_with_torch_runs_a_file_of_the_current_folder(files, here, name):
    pytest.importorskip("torch")
    done = call(WITH_TORCH[name], files, here)
    assert left(here) == ""
    assert done.code in (0, 1, 4), done.err


@pytest.mark.slow
@pytest.mark.usefixtures("unprotected", "fakes")
def test_an_environment_is_made_without_files_of_the_current_folder(files, here, tmp_path, monkeypatch):
    mine = tmp_path / "mine"
    shutil.copytree(FAULTY, mine)
    (mine / "honest.txt").write_text("./no-such-package-1.0-py3-none-any.whl\n")
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path / "environments"))
    monkeypatch.setenv("PATH", str(tmp_path))  # without uv
    done = called(["env", "create", "honest"], here, {"XVERIFY_FRAMEWORKS": str(mine)})
    assert left(here) == ""
    assert (done.code, "no-such-package" in done.err) == (3, True)


@pytest.mark.usefixtures("unprotected")
@pytest.mark.parametrize("module", ["xverify", "xverify.worker", "xverify.selftest.byhand", "xverify.selftest.script"])
def test_a_process_that_starts_in_the_current_folder_runs_no_file_of_it(here, tmp_path, module):
    command = worker_command(load("numpy"), tmp_path, 1, "cpu", module=module, arguments=["--version"])
    done = subprocess.run(
        command.arguments, env=command.environment, cwd=here, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    assert left(here) == "", done.stderr
    assert b"No module named" not in done.stderr


@pytest.mark.usefixtures("unprotected")
def test_a_program_has_its_arguments_and_the_entries_of_the_users_path(here, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "program.py").write_text("import sys, json; print(__name__, json.dumps(sys.argv[1:]))")
    monkeypatch.setenv(
        "PYTHONPATH", os.pathsep.join(filter(None, [str(tmp_path / "mine"), os.environ.get("PYTHONPATH")]))
    )
    command = interpreter.module(sys.executable, "program", "one", "-c")
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=True)
    assert (done.stdout, left(here)) == ('__main__ ["one", "-c"]\n', "")
    command = interpreter.module(sys.executable, "program", isolated=True)
    done = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    assert "No module named program" in done.stderr


def test_every_command_line_of_an_interpreter_is_made_in_one_place():
    places = [Path(package.__file__).parent, ADAPTERS.parents[1] / "models"]
    found = {
        str(path)
        for place in places
        for path in place.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, (ast.List, ast.Tuple))
        and "-c" in (words := [each.value for each in node.elts if isinstance(each, ast.Constant)])
        and "sh" not in words  # the shell of another machine, by ssh
    }
    assert {Path(path).name for path in found} == {"interpreter.py"}


# -- receipts ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize(
    "name",
    [
        *(
            "files/port/helper.so",
            "files/port/helper.pyc",
            "files/port/data.bin",
            "files/port/.hidden",
            "files/other/x",
        ),
        *("files/port/__pycache__/helper.cpython-311.pyc", "train/weights.npz", "forward/more.npz", "note.txt"),
    ],
)
def test_a_new_file_in_a_receipt_is_told(xverify, files, tmp_path, name):
    kept = shutil.copytree(files / "kept", tmp_path / "kept")
    (kept / name).parent.mkdir(exist_ok=True)
    (kept / name).write_bytes(b"")
    done = xverify("replay", kept)
    assert (done.code, len(done.err.splitlines())) == (2, 1)
    assert f"{name} is new" in done.err
    done = xverify("replay", kept, "--no-timing", "--anyway")
    assert (done.code, f"Differs: receipt: {name} is new" in done.out) == (0, True), done.err


@pytest.mark.usefixtures("in_one_process")
def test_a_new_link_to_a_folder_in_a_receipt_is_told(xverify, files, tmp_path):
    kept = shutil.copytree(files / "kept", tmp_path / "kept")
    (kept / "files" / "port" / "helper").symlink_to(files / "port")
    done = xverify("replay", kept)
    assert (done.code, "files/port/helper is new" in done.err) == (2, True)


@pytest.mark.usefixtures("in_one_process")
def test_a_replay_leaves_nothing_new_in_the_receipt(xverify, files, tmp_path):
    kept = shutil.copytree(files / "kept", tmp_path / "kept")
    for _ in range(2):
        assert xverify("replay", kept, "--no-timing").code == 0
