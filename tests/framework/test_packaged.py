"""What a framework needs outside of its folder: an extra or an environment, and its modules in the settings of the tools."""

import re
import sys
from pathlib import Path

import pytest

from xverify.environments import store
from xverify.errors import UsageError
from xverify.framework import discovery

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]


def missing(adapter):
    """What pyproject.toml lacks of an adapter."""
    names = (adapter.extra or adapter.name).split(",")
    packages = {re.split(r"[<>=~; ]", line)[0] for name in names for line in EXTRAS.get(name, ())}
    if adapter.isolated:
        if adapter.isolated not in store.pins():
            yield f"no environment {adapter.isolated}"
    else:
        yield from (f"no extra {name}" for name in names if name not in EXTRAS)
        yield from (f"{package} is in no extra of {names}" for package in adapter.needs if package not in packages)
    modules = {module.split(".")[0] for module in adapter.needs.values()} - {"numpy"}
    untyped = next(
        each["module"] for each in PROJECT["tool"]["mypy"]["overrides"] if each.get("follow_imports") == "skip"
    )
    yield from (f"mypy does not skip {module}" for module in modules if f"{module}.*" not in untyped)
    contract = next(each for each in PROJECT["tool"]["importlinter"]["contracts"] if each["id"] == "parent")
    allowed = modules - {"onnx"} - set(contract["forbidden_modules"])  # weights are read from ONNX files in the parent
    yield from (f"the parent may import {module}" for module in allowed)


@pytest.mark.parametrize("name", [name for name in discovery.files() if name != "numpy"])
def test_pyproject_knows_every_framework(name):
    assert list(missing(discovery.load(name))) == []


def test_a_framework_that_pyproject_does_not_know_is_found():
    class Novel(discovery.load("numpy")):
        name = "novel"
        needs = {"novel-cpu": "novel"}

    assert list(missing(Novel)) == [
        "no extra novel",
        "novel-cpu is in no extra of ['novel']",
        "mypy does not skip novel",
        "the parent may import novel",
    ]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (
            'name = "mine"; needs = {}',
            'class Adapter lacks modes = {"eager": function}; see docs/adding-a-framework.md',
        ),
        ("modes = {}", 'class Adapter lacks name = "mine", needs = {"package": "module"}; see'),
    ],
)
def test_an_adapter_without_what_each_defines_is_one_clear_line(tmp_path, monkeypatch, code, says):
    header = "from xverify.framework.adapter import Framework\n\n\nclass Adapter(Framework):\n    "
    (tmp_path / "mine.py").write_text(header + code + "\n")
    monkeypatch.setenv("XVERIFY_FRAMEWORKS", str(tmp_path))
    with pytest.raises(UsageError) as raised:
        discovery.load("mine")
    assert str(raised.value).startswith(f"{tmp_path / 'mine.py'}: {says}")


def test_a_home_that_cannot_be_written_is_told_by_jittor(tmp_path):
    from xverify.errors import Failed
    from xverify.frameworks.jittor.adapter import check_cache

    check_cache(tmp_path / ".cache" / "jittor")
    (tmp_path / "file").write_text("")
    with pytest.raises(
        Failed, match=r"Jittor cannot write into its cache .*file/.cache.*; name a home folder that can be"
    ):
        check_cache(tmp_path / "file" / ".cache" / "jittor")
