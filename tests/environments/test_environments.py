"""Environments are made and used by the command line: real interpreters with packages that this one does not have."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from conftest import write_folder
from helpers.envadapters import ADAPTERS, caller, visible, write_adapters

from xverify.environments import store as environments

ROOT = Path(__file__).parents[2]
FAST = ("--warmup", 1, "--rerun", 8)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    return write_adapters(tmp_path_factory.mktemp("adapters"))


@pytest.fixture(scope="module")
def made(adapters, tmp_path_factory):
    """The folder of environments with ``walled``, which replaced an incomplete one, and the result of the command."""
    root = tmp_path_factory.mktemp("environments")
    half_made(root / "walled")
    done = subprocess.run(
        [sys.executable, "-m", "xverify", "env", "create", "walled"],
        capture_output=True,
        text=True,
        env={**os.environ, "XVERIFY_FRAMEWORKS": str(adapters), "XVERIFY_ENVIRONMENTS": str(root)},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not (root / "walled" / "half").exists()
    return root, done


def half_made(folder):
    """Make what remains of an interrupted creation: an interpreter that starts, and no stamp."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").symlink_to(sys.executable)
    (folder / "pyvenv.cfg").write_text("")
    (folder / "half").write_text("")


def interpreter(root):
    return str(root / "walled" / "bin" / "python")


@pytest.fixture
def call(xverify, adapters, tmp_path, monkeypatch):
    return caller(xverify, adapters, tmp_path / "environments", monkeypatch)


@pytest.fixture
def folder(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", *ADAPTERS))


# -- making and using ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_creation_prints_its_steps_and_writes_the_stamp(made, adapters):
    root, done = made
    assert "walled: making " in done.stderr
    assert "walled: installing walled.txt with " in done.stderr
    assert re.search(r"walled is ready, for .*walled 1\.0", done.stdout)
    stamp = json.loads((root / "walled" / "xverify.json").read_text())
    assert stamp["name"] == "walled"
    assert stamp["python"] == sys.version.split()[0]
    assert stamp["pins"] == environments.digest(adapters / "walled.txt")
    assert stamp["packages"]["walled-engine"] == "1.0"
    # Jittor looks there for the include folder of Python's headers.
    config = f"python{sys.version_info.major}.{sys.version_info.minor}-config"
    if (Path(sysconfig.get_config_var("BINDIR")) / config).is_file():
        includes = [root / "walled" / "bin" / config, "--includes"]
        said = subprocess.run(includes, capture_output=True, text=True, check=True).stdout
        assert (Path(said.split()[0].removeprefix("-I")) / "Python.h").is_file()


@pytest.mark.slow
def test_a_run_uses_the_environment_and_reports_it(made, call, folder):
    root, _ = made
    done = call("run", folder, "--subjects", "numpy,walled,apart,plain", *FAST, root=root)
    assert done.code == 0, done.out + done.err
    ran = {row["subject"].split(":")[0]: row["environment"] for row in done.result["rows"]}
    assert ran["walled"]["interpreter"] == ran["apart"]["interpreter"] == interpreter(root)
    assert ran["walled"]["python"] == sys.version.split()[0]
    assert ran["numpy"]["interpreter"] == ran["plain"]["interpreter"] == sys.executable
    assert done.result["settings"]["python"] == {"walled": interpreter(root), "apart": interpreter(root)}
    assert done.row("walled")["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert "have changed" not in done.out


@pytest.mark.slow
def test_its_framework_is_a_default_subject_when_the_environment_exists(made, call, folder):
    root, _ = made
    missing = call("run", folder, *FAST)
    assert {row["framework"] for row in missing.result["rows"]} == {"apart", "plain"}
    assert "walled is not covered: it is not installed (pip install walled-engine, or" in missing.out
    assert "xverify env create walled)" in missing.out
    found = call("run", folder, *FAST, root=root)
    assert {row["framework"] for row in found.result["rows"]} == {"walled", "apart", "plain"}


@pytest.mark.slow
def test_an_interpreter_that_the_user_names_is_preferred(made, call, folder):
    root, _ = made
    done = call("run", folder, "--subjects", "numpy,apart", "--python", f"apart={sys.executable}", *FAST, root=root)
    assert done.row("apart")["environment"]["interpreter"] == sys.executable
    done = call("run", folder, "--subjects", "numpy,walled", "--python", f"walled={sys.executable}", *FAST, root=root)
    assert done.row("walled")["status"] == "not-installed"


@pytest.mark.slow
def test_a_framework_that_is_installed_and_not_isolated_runs_in_this_interpreter(made, call, folder, tmp_path):
    """An additional environment for this framework is not used."""
    root, _ = made
    (tmp_path / "environments").mkdir()
    shutil.copytree(root / "walled", tmp_path / "environments" / "plain", symlinks=True)
    done = call("run", folder, "--subjects", "numpy,plain", *FAST)
    assert done.row("plain")["environment"]["interpreter"] == sys.executable


@pytest.mark.slow
def test_doctor_names_the_interpreter_or_the_command_to_type(made, call):
    root, _ = made
    done = call("doctor", root=root)
    assert re.search(rf"✓ walled +1\.0: walled.*\n +in {re.escape(interpreter(root))} \(Python", done.out)
    assert not re.search(r"✓ plain .*\n +in ", done.out)
    done = call("doctor")
    assert re.search(
        r"✗ walled .*Type: pip install walled-engine, or in an environment of its own: xverify env create walled",
        done.out,
    )
    assert re.search(
        r"✗ jax .*Type: xverify env create jax(\n|\. It needs)", done.out
    )  # it is never installed beside the others


@pytest.mark.slow
def test_list_prints_text_and_json(made, call):
    root, _ = made
    found = json.loads(call("env", "list", "--json", root=root).out)
    assert found["folder"] == str(root)
    [there] = found["environments"]
    assert there["name"] == "walled"
    assert sorted(there["frameworks"]) == ["apart", "walled"]
    assert there["python"] == sys.version.split()[0]
    assert there["current"] is True
    assert there["interpreter"] == interpreter(root)
    assert there["bytes"] > 1e6
    assert "walled" not in found["available"]
    assert "jax" in found["available"]["jax"]
    assert "notes" not in found["available"]
    shown = call("env", "list", root=root).out
    assert re.search(r"walled +\S+, \S+ +\d\S+ +[\d,]+ MiB", shown)
    assert "xverify env create jax" in shown
    assert "walled" in json.loads(call("env", "list", "--json").out)["available"]


@pytest.mark.slow
def test_the_name_of_a_framework_means_its_environment(made, call):
    root, _ = made
    done = call("env", "create", "apart", "walled", root=root)
    assert (done.code, done.out.count("walled exists already")) == (0, 1)
    done = call("env", "remove", "apart", root=root)  # it would remove what another framework uses, too
    assert done.code == 2
    assert "unknown environment 'apart'" in done.err


@pytest.mark.slow
def test_creating_a_current_environment_again_changes_nothing(made, call):
    root, _ = made
    before = (root / "walled" / "xverify.json").stat().st_mtime_ns
    done = call("env", "create", "walled", root=root)
    assert done.code == 0
    assert "walled exists already" in done.out
    assert (root / "walled" / "xverify.json").stat().st_mtime_ns == before


@pytest.mark.slow
def test_changed_pins_are_reported_and_a_failed_creation_keeps_the_old_environment(
    made, call, adapters, folder, tmp_path
):
    root, _ = made
    changed = tmp_path / "changed"
    shutil.copytree(adapters, changed)
    pins = (changed / "walled.txt").read_text()
    (changed / "walled.txt").write_text(pins + "# a comment changes nothing\n")
    assert json.loads(call("env", "list", "--json", root=root, frameworks=changed).out)["environments"][0]["current"]
    (changed / "walled.txt").write_text(pins + "./no-such-package-1.0-py3-none-any.whl\n")
    assert not json.loads(call("env", "list", "--json", root=root, frameworks=changed).out)["environments"][0][
        "current"
    ]
    assert "its pins have changed. Type: xverify env create walled" in call("doctor", root=root, frameworks=changed).out
    done = call("env", "create", "walled", root=root, frameworks=changed)
    assert done.code == 3
    assert "walled is made again: its pins have changed" in done.out
    assert "no-such-package" in done.err
    assert os.listdir(root / "walled")
    done = call("run", folder, "--subjects", "numpy,walled", *FAST, root=root, frameworks=changed)
    assert done.row("walled")["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert "the pins of walled's environment have changed: xverify env create walled" in done.out


@pytest.mark.slow
def test_an_environment_without_a_needed_package_is_not_used(made, call, folder, tmp_path):
    root, _ = made
    place = tmp_path / "environments" / "walled"
    shutil.copytree(root / "walled", place, symlinks=True)
    stamp = json.loads((place / "xverify.json").read_text())
    del stamp["packages"]["walled-engine"]
    (place / "xverify.json").write_text(json.dumps(stamp))
    assert json.loads(call("env", "list", "--json").out)["environments"][0]["frameworks"] == ["apart"]
    assert call("run", folder, "--subjects", "numpy,walled", *FAST).row("walled")["status"] == "not-installed"


def test_environments_are_in_the_cache_folder_unless_another_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("XVERIFY_ENVIRONMENTS", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert environments.root() == Path.home() / ".cache" / "xverify" / "environments"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert environments.root() == tmp_path / "xverify" / "environments"
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", "~/mine")
    assert environments.root() == Path.home() / "mine"


# -- missing, incomplete ------------------------------------------------------------------------------------------------


def test_a_framework_that_is_not_installed_names_the_command_for_its_environment(call, folder):
    done = call("run", folder, "--subjects", "numpy,walled", *FAST)
    assert done.code == 3
    reason = done.row("walled")["reason"]
    assert "walled_engine is not installed in" in reason
    assert reason.endswith("xverify env create walled")


def test_an_incomplete_environment_is_ignored_and_can_be_removed(call, folder, tmp_path):
    place = tmp_path / "environments" / "walled"
    half_made(place)
    done = call("run", folder, "--subjects", "numpy,apart", *FAST)
    assert done.row("apart")["environment"]["interpreter"] == sys.executable
    assert json.loads(call("env", "list", "--json").out)["environments"] == []
    assert call("env", "remove", "walled").code == 0
    assert not place.exists()


@pytest.mark.parametrize("stamp", ["", "[]", '{"name": "walled"}', "\\x00"])
def test_an_environment_with_an_unreadable_stamp_does_not_count(monkeypatch, tmp_path, stamp):
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path))
    half_made(tmp_path / "walled")
    whole = {"name": "walled", "python": "3.11.7", "pins": "sha256:0", "packages": {}}
    (tmp_path / "walled" / "xverify.json").write_text(json.dumps(whole))
    assert environments.find("walled") is not None
    (tmp_path / "walled" / "xverify.json").write_text(stamp)
    assert environments.find("walled") is None


@pytest.mark.slow
def test_an_environment_whose_python_was_removed_does_not_count(made, call, tmp_path):
    root, _ = made
    place = tmp_path / "environments" / "walled"
    shutil.copytree(root / "walled", place, symlinks=True)
    assert json.loads(call("env", "list", "--json").out)["environments"]
    (place / "bin" / "python").unlink()
    (place / "bin" / "python").symlink_to(tmp_path / "no-python")
    assert json.loads(call("env", "list", "--json").out)["environments"] == []


# -- wrong usage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["create", "waled"], "unknown environment 'waled'; did you mean 'walled'? Known: "),
        (["create", "notes"], "unknown environment 'notes'"),
        (["create", "../walled"], "unknown environment '../walled'"),
        (["create"], "NAME"),
        (["remove", "walled"], "unknown environment 'walled'. None exists."),
        (["fly"], "unknown action 'fly'. Known: create, list, remove"),
        ([], "ACTION"),
    ],
)
def test_wrong_arguments_get_a_message_of_one_line(call, arguments, says):
    done = call("env", *arguments)
    assert done.code == 2
    assert says in done.err


@pytest.mark.slow
def test_removing_a_wrong_name_suggests_the_nearest(made, call):
    done = call("env", "remove", "waled", root=made[0])
    assert done.code == 2
    assert "did you mean 'walled'? Known: walled" in done.err
    assert call("env", "remove", "..", root=made[0]).code == 2
    assert (made[0] / "walled" / "xverify.json").exists()


@pytest.mark.slow
def test_remove_deletes_it(made, call, tmp_path):
    shutil.copytree(made[0] / "walled", tmp_path / "environments" / "walled", symlinks=True)
    done = call("env", "remove", "walled")
    assert done.code == 0
    assert re.search(r"environments/walled is removed \([1-9]\d* MiB\)", done.out)
    assert visible(tmp_path / "environments") == []
