"""docs/testing-a-port.md, followed word by word in a fresh folder: the port passes, and its planted fault is named."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.installedplugin import as_installed

from xverify import __version__

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "testing-a-port.md").read_text()


def files():
    """Path -> text of every file that the page tells its reader to write."""
    found = re.findall(
        r"^`([\w./]+)`[^\n]*(?:\n[^\n`]+)*\n\n```(?:python|yaml)\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL
    )
    return dict(found)


def commands(text):
    """The command lines that pytest is started with."""
    return re.findall(r"^(?:\s*- run: )?(python -m pytest.*)$", text, re.MULTILINE)


@pytest.fixture
def repository(tmp_path):
    place = tmp_path / "my_repository"
    for path, text in files().items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    return place


def call(repository, command, site):
    path = os.pathsep.join(filter(None, [str(site), str(ROOT), os.environ.get("PYTHONPATH")]))
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "XVERIFY_"))}
    words = [sys.executable, *shlex.split(command)[1:]]
    done = subprocess.run(
        words, cwd=repository, env={**variables, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def test_the_files_of_the_page_are_those_of_its_tree():
    [tree] = re.findall(r"^```\nmy_repository/\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL)
    names = {line.split()[0] for line in tree.splitlines()}
    [wheel] = {name for name in names if name.endswith(".whl")}
    assert {Path(path).name for path in files()} == {name for name in names if name[-1] != "/"} - {wheel}
    assert PAGE.count(f'pip install pytest "wheels/{wheel}[torch,tensorflow]"') == 2
    assert wheel.startswith(f"xverify_frameworks-{__version__}-")


def test_the_workflow_runs_the_command_of_the_page_and_keeps_its_report():
    workflow = files()[".github/workflows/port.yml"]
    [command] = commands(workflow)
    [report] = re.findall(r"--xverify-report=(\S+)", command)
    assert f"path: {report}\n" in workflow
    assert "if: always()" in workflow
    assert re.findall(r"^ *(?:- )?(\w[\w-]*):", workflow, re.MULTILINE)[:2] == ["name", "on"]


@pytest.mark.slow
def test_the_page_is_followed_to_a_pass_and_to_a_failure(repository, tmp_path):
    site = as_installed(tmp_path / "site")
    first, *_ = commands(PAGE)
    code, out = call(repository, first, site)
    assert (code, "1 passed" in out) == (0, True), out
    port = repository / "my_port" / "tensorflow.py"
    assert "remove `epsilon=1e-5, `" in PAGE
    assert "epsilon=1e-5, " in port.read_text()
    port.write_text(port.read_text().replace("epsilon=1e-5, ", ""))
    code, out = call(repository, commands(files()[".github/workflows/port.yml"])[0], site)
    assert code == 1, out
    message = [line[1:].strip() for line in out.splitlines() if line.startswith("E  ")]
    [shown] = re.findall(r"^```\n(E  .*?)```", PAGE, re.MULTILINE | re.DOTALL)
    expected = [line[1:].strip() for line in shown.splitlines()]
    assert [fixed(line) for line in message] == [fixed(line) for line in expected]
    assert "layer 1 (BatchNorm2d): behaves as eps=0.001; the reference has 1e-05" in "\n".join(message)
    assert "FAIL" in (repository / "report.html").read_text()


@pytest.mark.slow
@pytest.mark.long
def test_the_further_examples_pass(repository, tmp_path):
    examples = re.findall(r"^```python\n((?:from xverify[^`]*)?def test_\w+\([^`]*)```", PAGE, re.MULTILINE)
    further = [text for text in examples if "def test_port" not in text]
    assert len(further) == 2
    (repository / "test_port.py").write_text("\n".join(further))
    code, out = call(repository, "python -m pytest", as_installed(tmp_path / "site"))
    assert (code, "3 passed" in out) == (0, True), out


@pytest.mark.slow
@pytest.mark.long
def test_the_port_within_one_framework_passes_and_its_fault_is_named(repository, tmp_path):
    section = PAGE.split("## A port within one framework\n")[1].split("\n## ")[0]
    blocks = re.findall(r"^```(?:python|toml)\n(.*?)```", section, re.MULTILINE | re.DOTALL)
    paths = ("fast/net.py", "my_port/names.toml", "test_port.py")
    (repository / "fast").mkdir()
    for path, text in zip(paths, blocks, strict=True):
        (repository / path).write_text(text)
    site = as_installed(tmp_path / "site")
    code, out = call(repository, "python -m pytest", site)
    assert (code, "1 passed" in out) == (0, True), out
    port = repository / "fast" / "net.py"
    assert "`nn.BatchNorm2d(16, eps=1e-3)`" in section
    port.write_text(port.read_text().replace("nn.BatchNorm2d(16)", "nn.BatchNorm2d(16, eps=1e-3)"))
    code, out = call(repository, "python -m pytest", site)
    [message] = re.findall(r"^`(layer 1 .*?)`\.$", section, re.MULTILINE)
    assert (code, f"AssertionError: {message}" in out) == (1, True), out


def fixed(line):
    """A line without its measured figures, and without the folder and the threads of its machine."""
    line = re.sub(r"\S*my_port\b", "my_port", line)
    return re.sub(r"\d+(,\d{3})*(\.\d+)?(e[-+]\d+)?", "0", line).replace("…", "")
