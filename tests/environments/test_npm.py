"""Packages of npm in an environment: the lock file, Node.js that is missing or old, and what npm is asked."""

import json
import os
import shutil

import pytest
from helpers.envadapters import NUMPY, caller, visible, write_adapters

from xverify.environments import npm, store

NODE = "#!/bin/sh\necho {version}\n"
# It installs the package as npm does, from the lock file in the folder of --prefix, and records what it was asked.
NPM = """#!/bin/sh
echo "$@" > {asked}
test -f "$3/package-lock.json" || exit 1
mkdir -p "$3/node_modules/walled-web"
"""
MANIFEST = {"engines": {"node": ">=20"}, "dependencies": {"walled-web": "2.1.0"}}
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


def programs(tmp_path, monkeypatch, **scripts):
    """Let the path have these programs, and of the system's own only those that are no Node.js."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, script in scripts.items():
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    for place in os.environ["PATH"].split(os.pathsep):
        for each in os.listdir(place) if os.path.isdir(place) else ():
            if each not in ("node", "npm", "nodejs", "uv") and not (folder / each).exists():
                (folder / each).symlink_to(os.path.join(place, each))
    monkeypatch.setenv("PATH", str(folder))


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


@pytest.mark.parametrize(
    ("scripts", "says"),
    [
        ({}, "node and npm not found on the path"),
        ({"node": NODE.format(version="v20.1.0")}, "npm not found on the path"),
        ({"node": NODE.format(version="v18.20.4"), "npm": "#!/bin/sh\n"}, "node is Node.js v18.20.4"),
        ({"node": "#!/bin/sh\nexit 1\n", "npm": "#!/bin/sh\n"}, "node is Node.js of no version"),
    ],
)
def test_a_missing_or_old_node_is_one_clear_line(call, tmp_path, monkeypatch, scripts, says):
    programs(tmp_path, monkeypatch, **scripts)
    done = call("env", "create", "walled")
    assert done.code == 3
    assert "xverify env: the environment walled cannot be made: " in done.err
    assert f"{says}. Install Node.js 20 or newer with npm, and type the command again" in done.err
    assert not (tmp_path / "environments").exists()


@pytest.mark.slow
def test_npm_installs_what_the_lock_file_holds(call, adapters, tmp_path, monkeypatch):
    asked = tmp_path / "asked"
    programs(tmp_path, monkeypatch, node=NODE.format(version="v22.0.0"), npm=NPM.format(asked=asked))
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
def test_a_failure_of_npm_is_quoted_and_leaves_nothing(call, tmp_path, monkeypatch):
    broken = "#!/bin/sh\necho npm error code EINTEGRITY\nexit 1\n"
    programs(tmp_path, monkeypatch, node=NODE.format(version="v20.0.0"), npm=broken)
    done = call("env", "create", "walled")
    assert done.code == 3
    assert "walled: installing walled-web with npm (minutes) failed:" in done.err
    assert "npm error code EINTEGRITY" in done.err
    assert visible(tmp_path / "environments") == []
