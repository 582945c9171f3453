"""Environments of one version of a package, such as ``onnxruntime==1.20.1``, which a check makes when it needs them.

They lie beside the other environments, and have their names. Beside the package in this version, they hold the packages of the pins
of the adapter: numpy as it is pinned there, and of each other package the newest version that fits.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence

from .. import host, reading
from ..errors import UsageError, XverifyError
from ..framework.runner import Runner
from ..progress import Listener
from . import create, npm, store
from .store import Environment

VERSION = re.compile(r"\d[\w.+!-]*", re.ASCII)
PACKAGE = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(.*)", re.ASCII)
KNOWN = re.compile(r"\s*\(from versions: (.*?)\)")  # how pip lists the versions that there are
SIDE = 2  # versions on either side of one that does not exist that a message names
PINNED = "numpy"  # a binary package may be built for an older one without saying so


def parse(text: str) -> tuple[str, str]:
    """(name, version) of ``onnxruntime==1.20.1``; the version is "" where the text has none. Raises UsageError."""
    name, equals, version = (part.strip() for part in text.partition("=="))
    if equals and not (name and VERSION.fullmatch(version)):
        raise UsageError(f"--on {text.strip()}: write NAME==VERSION, e.g. --on onnxruntime==1.20.1")
    return name, version


def in_order(versions: Iterable[str]) -> list[str]:
    """Versions from the oldest to the newest."""
    return sorted(versions, key=_key)


def _key(version: str) -> list[tuple[int, int, str]]:
    """The sort key of a version. A word, as in ``1.20.0rc1``, comes before the end, and the end before ``post`` and a number."""
    parts = re.findall(r"\d+|[a-z]+", version.lower())
    found = [(2, int(part), "") if part.isdigit() else (int(part == "post"), 1, part) for part in parts]
    while len(found) > 1 and found[-1] == (2, 0, ""):
        found.pop()
    return [*found, (1, 0, "")]


def interpreter(adapter: type[Runner], version: str, listener: Listener) -> str:
    """An interpreter that has this version of an adapter's package: this one, or that of an environment, made if there is none.

    Raises UsageError with the installer's reason when it cannot be installed, and XverifyError when no environment can be made.
    """
    pins = store.pins_of(adapter)
    if pins is not None and npm.folder_of(pins) is not None:
        raise UsageError(
            f"--on {_package(adapter)} takes no version: only the one of its environment is installed, with npm from a lock file"
        )
    wanted, usual = _key(version), store.chosen(adapter)
    if (
        usual is None
        and not adapter.isolated
        and not host.missing(adapter)
        and _key(host.version(adapter) or "") == wanted
    ):
        return sys.executable
    made = (each for each in store.find_all() if each.name.partition("==")[0] == _package(adapter))
    for environment in filter(None, (usual, *made)):
        if _key(environment.version(adapter) or "") == wanted:
            return environment.interpreter
    return _made(adapter, version, listener).interpreter


def _package(adapter: type[Runner]) -> str:
    """The package that has the version of an adapter."""
    return next(iter(adapter.needs))


def _made(adapter: type[Runner], version: str, listener: Listener) -> Environment:
    """A new environment of this version. Raises XverifyError."""
    name = f"{_package(adapter)}=={version}"
    try:
        return create.create_of(name, list(requirements(adapter, version)), listener)
    except XverifyError as error:
        if len(error.args) == 1:  # no installer said why
            raise
        raise UsageError(
            f"--on {name}: it cannot be installed: {_reason([str(each) for each in error.args[1:]])}"
        ) from None
    finally:
        listener.ended(name, "")


def requirements(adapter: type[Runner], version: str) -> Iterator[str]:
    """What is installed into the environment of a version, one package each, as pip takes it."""
    package = _package(adapter)
    yield f"{package}=={version}"
    pins = store.pins_of(adapter)
    lines = reading.given(pins).decode("utf-8").splitlines() if pins else [*adapter.needs, PINNED]
    told = {package.lower()}
    for line in lines:
        match = PACKAGE.match(line.strip())  # a comment, or the path of a file, is no package
        if match is None or match[2].startswith(("/", "@")):
            continue
        name = match[1].lower()
        if name == PINNED:
            yield line.strip()
        elif name not in told:
            told.add(name)
            yield match[1]


def _reason(lines: Sequence[str]) -> str:
    """Why an installer failed, in one line, with the versions that are near where it lists them."""
    errors = [line.strip() for line in lines if line.strip().startswith("ERROR:")]
    says = " ".join(errors[:1] or [line.strip() for line in lines]).removeprefix("ERROR:").strip()
    known = KNOWN.search(says)
    if known is None:
        return says
    asked = re.search(r"==(\S+)", says)
    versions = in_order(part.strip() for part in known[1].split(",") if VERSION.fullmatch(part.strip()))
    place = bisect([_key(each) for each in versions], _key(asked[1])) if asked else len(versions)
    near = versions[max(0, place - SIDE) : place + SIDE]
    return KNOWN.sub("", says) + (
        f"; versions that there are: {', '.join(near)}" if near else "; there is none for this Python"
    )
