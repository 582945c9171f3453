"""The wheel: everything of the package is in it, and it runs outside of the repository."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# Folders of the repository -> where they are installed.
SOURCES = {"xverify": "xverify", "models": "xverify/models", "weights": "xverify/weights"}


def copy_sources(folder):
    """What a wheel is built from; outside of the repository, where no older build is."""
    for source in SOURCES:
        ignored = ["__pycache__", *(("models", "weights") if source == "xverify" else ())]
        shutil.copytree(ROOT / source, folder / source, ignore=shutil.ignore_patterns(*ignored))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def build(folder):
    """The wheel of these sources."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
        "-w",
        folder,
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


def expected(folder):
    """The path in the wheel of every file in the sources."""
    files = ((source, place, path) for source, place in SOURCES.items() for path in (folder / source).rglob("*"))
    return {
        f"{place}/{path.relative_to(folder / source).as_posix()}" for source, place, path in files if path.is_file()
    }


def contents(wheel):
    with zipfile.ZipFile(wheel) as file:
        return {name for name in file.namelist() if ".dist-info/" not in name}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return build(copy_sources(tmp_path_factory.mktemp("wheel")))


def test_the_wheel_holds_every_file(wheel):
    held = contents(wheel)
    assert held == expected(wheel.parent)
    for path in (
        "models/mlp/spec.py",
        "environments/jittor.txt",
        "selftest/model/numpy.py",
        "selftest/planted/lazy.py",
    ):
        assert f"xverify/{path}" in held


def test_the_wheel_declares_the_command_and_the_plugin_of_pytest(wheel):
    with zipfile.ZipFile(wheel) as file:
        [name] = [name for name in file.namelist() if name.endswith(".dist-info/entry_points.txt")]
        text = file.read(name).decode()
    assert "[console_scripts]\nxverify = xverify.commands._main:main\n" in text
    assert "[pytest11]\nxverify = xverify.testing.plugin\n" in text


@pytest.mark.parametrize(
    ("file", "old", "new", "missing"),
    [
        ("setup.py", 'include=["xverify", "xverify.*"]', 'include=["xverify"]', "xverify/engine/run.py"),
        ("setup.py", ', "xverify.models"', "", "xverify/models/mlp/spec.py"),
        ("pyproject.toml", '"xverify.report" =', '"xverify.other" =', "xverify/report/templates/page.html"),
        ("pyproject.toml", '"xverify.environments" =', '"xverify.other" =', "xverify/environments/jittor.txt"),
        ("pyproject.toml", '"xverify.selftest" =', '"xverify.other" =', "xverify/selftest/model/numpy.py"),
    ],
)
def test_what_is_missing_is_seen(tmp_path, file, old, new, missing):
    folder = copy_sources(tmp_path)
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new))
    assert missing in expected(folder) - contents(build(folder))


def test_a_new_package_is_packed_without_being_listed(tmp_path):
    folder = copy_sources(tmp_path)
    (folder / "xverify" / "novelty" / "inner").mkdir(parents=True)
    for place in ("novelty", "novelty/inner"):
        (folder / "xverify" / place / "__init__.py").write_text("")
    assert "xverify/novelty/inner/__init__.py" in contents(build(folder))


@pytest.mark.slow
def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    """The frameworks are those of this environment; xverify is not, as paths in a .pth file do not bring editable installs."""
    place = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    python = place / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True, capture_output=True)
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lent = dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path])
    lent = [path for path in lent if Path(path).name in ("site-packages", "dist-packages")]
    (Path(site) / "lent.pth").write_text("\n".join(lent) + "\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "XVERIFY_"))}

    def call(*arguments):
        command = [python.with_name("xverify"), *arguments]
        done = subprocess.run(
            command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    code = "import xverify, xverify.models, xverify.weights as w; print(xverify.__file__, xverify.models.__file__, w.__file__)"
    found = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=variables, capture_output=True, text=True, check=True
    )
    assert all(path.startswith(site) for path in found.stdout.split()), found.stdout
    listed = json.loads(call("list", "--json"))
    assert {model["name"] for model in listed["models"]} >= {"mlp", "resnet50", "gpt-tiny"}
    assert {"jittor", "torch"} <= set(json.loads(call("env", "list", "--json"))["available"])
    call("run", "mlp", "--subjects", "torch:eager,numpy", "--warmup", "1", "--rerun", "4", "--json", "result.json")
    result = json.loads((tmp_path / "result.json").read_text())
    assert [row["error"]["verdict"] for row in result["rows"]] == ["IDENTICAL", "EQUAL"]
