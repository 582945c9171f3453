"""The pins of the packages of each environment that come with xverify."""

import re
import sys
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from xverify.environments import interpreters, npm
from xverify.environments import store as environments
from xverify.framework import discovery as frameworks

ROOT = Path(__file__).parents[2]
PINS = sorted((ROOT / "xverify" / "environments").glob("*.txt"))


PYTHONS = [(3, minor) for minor in range(10, 15)]


def versions(file, python=sys.version_info[:2]):
    """The pinned version of every package, for one Python version on Linux, by the package's normal name."""
    environment = {
        "python_version": f"{python[0]}.{python[1]}",
        "python_full_version": f"{python[0]}.{python[1]}.9",
        "sys_platform": "linux",
    }
    lines = (line.partition("#")[0].strip() for line in file.read_text().splitlines())
    pinned = [Requirement(line) for line in lines if line]
    pinned = [pin for pin in pinned if pin.marker is None or pin.marker.evaluate(environment)]
    found = {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pinned}
    assert len(found) == len(pinned), "a package is pinned twice"
    return found


def pythons(file):
    return [python for python in PYTHONS if python in interpreters.wanted(file)]


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_name_their_python_versions(file):
    assert interpreters.wanted(file) != interpreters.ANY
    assert (3, 11) in interpreters.wanted(file)  # the version that is tested
    assert set(interpreters.wanted(file).newest_first()) <= {f"{major}.{minor}" for major, minor in PYTHONS}


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_contain_all_packages_that_their_frameworks_need(file):
    served = [frameworks.load(name) for name in environments.serves(file.stem)]
    assert served
    for python in pythons(file):
        pinned = versions(file, python)
        assert "numpy" in pinned
        locked = npm.folder_of(file)
        pinned |= npm.packages(locked) if locked else {}
        for adapter in served:
            assert set(adapter.needs) <= set(pinned), adapter.name


@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
def test_pins_contain_all_packages_of_the_extra_of_this_name(name):
    """This holds for the frameworks whose workers use all of these packages."""
    [extra] = re.findall(rf"^{name} = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    needed = set(re.findall(r'"([\w-]+)', extra))
    assert name in needed
    assert needed <= set(versions(ROOT / "xverify" / "environments" / f"{name}.txt"))


@pytest.mark.parametrize("file", PINS, ids=lambda file: file.stem)
def test_pins_have_the_versions_of_the_tested_set(file):
    """A package that ``make`` installs, too, has the same version. JAX and ExecuTorch need a newer numpy, Paddle one opt-einsum."""
    assert pythons(file)
    for python in pythons(file):
        tested, pinned = versions(ROOT / "constraints.txt", python), versions(file, python)
        other = {name for name in set(pinned) & set(tested) if pinned[name] != tested[name]}
        allowed = {"jax": {"numpy"}, "executorch": {"numpy"}, "paddle": {"opt-einsum"}}.get(file.stem, set())
        assert other <= allowed, python
