"""What a cell will run, and the key by which its result is found again."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache

from .. import host
from ..engine.stages import subjects_of
from ..environments import store as environments
from ..errors import UsageError, XverifyError
from ..framework import discovery
from ..receipts import machine
from ..reference import summary
from ..reference.request import resolve
from ..results.conditions import Settings
from ..results.records import Result, plain
from ..version import __version__
from ..workload.request import Request
from .matrix import Cell

# Settings that do not change what a run measures. The folder and the weights are compared by their digests.
NOT_COMPARED = ("model", "weights", "timeout", "notes", "python", "trust", "asked")
LONGEST_NAME = 60  # characters of the model in the name of a file


@dataclass(frozen=True)
class Planned:
    """A cell that can run.

    model: the name of the model. item: what one element of a batch is called.
    settings: as they will be in the result. versions: name -> version of everything that takes part.
    key: of the settings, the files and the versions; equal keys ask for the same run.
    """

    cell: Cell
    model: str
    item: str
    settings: Settings
    versions: Mapping[str, str]
    key: str

    @property
    def name(self) -> str:
        return self.cell.name

    @property
    def file(self) -> str:
        """The name of its result file."""
        model = re.sub(r"[^A-Za-z0-9._-]", "_", self.model)[:LONGEST_NAME].lstrip(".") or "model"
        return f"{model}-{self.settings.task}-b{self.settings.batch}-{self.key[:16]}.json"

    @property
    def labels(self) -> tuple[str, ...]:
        """How the subjects are called."""
        return tuple(each.label for each in subjects_of(self.settings))

    def misfit(self, result: Result) -> str:
        """How a result is not of this cell, by its model, settings, digests, rows and version; "" when it is of this cell."""
        there, here = _compared(result.settings), _compared(self.settings)
        there |= {"model": result.model, "tasks": result.tasks, "rows": tuple(row.subject for row in result.timed_rows)}
        here |= {"model": self.model, "tasks": (self.settings.task,), "rows": self.labels}
        there["xverify"], here["xverify"] = result.xverify, self.versions["xverify"]
        other = (name for name in here if there[name] != here[name])
        return "; ".join(f"{name.replace('_', ' ')} is {there[name]!r}, and here {here[name]!r}" for name in other)


def plan(cells: Iterable[Cell]) -> list[Planned | str]:
    """Each cell as it will run here, or why it cannot."""
    found: list[Planned | str] = []
    for cell in cells:
        try:
            found.append(_plan(cell))
        except XverifyError as error:
            found.append(str(error))
    return found


def checked(cells: Iterable[Cell], planned: Iterable[Planned | str]) -> list[Planned]:
    """The planned cells, without those that ask for the same run twice.

    Raises UsageError, which names every cell that cannot run.
    """
    good: dict[str, Planned] = {}
    problems = []
    for cell, each in zip(cells, planned):
        if isinstance(each, str):
            problems.append(f"{cell.name}: {each}")
        else:
            good.setdefault(each.key, each)
    if problems:
        count = f"{len(problems)} of the cells" if len(problems) > 1 else "a cell"
        raise UsageError(f"{count} cannot run; leave them out, in a file with [[exclude]]:", *problems)
    return list(good.values())


def _plan(cell: Cell) -> Planned:
    request, folder = resolve(cell.model, cell.subjects, cell.settings)
    settings = summary.settings(request, folder)
    versions = _versions(request)
    adapters = machine.adapters(request.subjects)
    text = json.dumps(
        plain({"settings": _compared(settings), "versions": versions, "adapters": adapters}), sort_keys=True
    )
    key = hashlib.sha256(f"{folder.name}\0{text}".encode("utf-8", "backslashreplace")).hexdigest()
    return Planned(cell, folder.name, folder.spec.item, settings, versions, key)


def _compared(settings: Settings) -> dict[str, object]:
    """Name -> value of the settings that change what a run measures. The optimizer is a text, because JSON has none."""
    # Not by vars(), in which a field is absent that a file did not have.
    values = {each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in NOT_COMPARED}
    return {**values, "optimizer": repr(values["optimizer"])}


def _versions(request: Request) -> dict[str, str]:
    """The versions of xverify, of Python, of numpy, and of every framework that takes part."""
    adapters = [discovery.named(request.reference), *(discovery.parse_subject(text)[0] for text in request.subjects)]
    names = dict.fromkeys(adapter.name for adapter in adapters)
    own = {"xverify": __version__, "python": platform.python_version(), "numpy": _numpy()}
    return own | {name: _version(name, request.python.get(name)) or "unknown" for name in names}


@cache
def _numpy() -> str:
    from importlib import metadata

    return metadata.version("numpy")


@cache
def _version(framework: str, interpreter: str | None) -> str | None:
    """The version of a framework in the interpreter in which it runs; None stands for this one."""
    adapter = discovery.load(framework)
    if interpreter is None:
        return host.version(adapter)
    environment = environments.chosen(adapter)
    if environment is not None and environment.interpreter == interpreter:
        return environment.version(adapter)
    installed = machine.packages({adapter.name: interpreter})[interpreter]
    return next((installed[name] for needed in adapter.needs.items() for name in needed if name in installed), None)
