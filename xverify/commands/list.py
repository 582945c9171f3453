from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TypedDict

from .. import host
from ..environments import store as environments
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..reference.subjects import offered, order
from ..workload.spec import ModelFolder, find_model, zoo
from ._arguments import Parser

HELP = "list the models, the frameworks and their modes, and which can run here"
GROUP = "models, weights, environments"
EXAMPLE = "examples:\n  xverify list\n  xverify list --json\n  xverify list --markdown"
EXIT_CODES = {0: "done", 2: "a wrong command line, or a model folder that cannot be read"}


class ModelEntry(TypedDict, total=False):
    """A model. refused: subject -> why it cannot run this model; absent when the model files were not read."""

    name: str
    description: str
    task: str
    batch: int
    inputs: dict[str, list[int | str]]
    outputs: dict[str, list[int | str]]
    frameworks: list[str]
    refused: dict[str, str]


class FrameworkEntry(TypedDict):
    """A framework. missing: the packages that it lacks here."""

    name: str
    subjects: list[str]
    version: str | None
    installed: bool
    missing: list[str]


class Catalogue(TypedDict):
    """What the command lists, and prints as JSON."""

    models: list[ModelEntry]
    frameworks: list[FrameworkEntry]


def add_arguments(parser: Parser) -> None:
    formats = parser.group("output").add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON, for programs")
    formats.add_argument("--markdown", action="store_true", help="print which framework runs which model, in Markdown")


def catalogue(refusals: bool = True) -> Catalogue:
    """Models, frameworks and subjects as JSON values. No framework is imported.

    refusals: whether to read every model file, to find the modes that cannot run it; when False, "refused" is left out.
    """
    adapters = {adapter.name: adapter for adapter in sorted(frameworks.computing().values(), key=order)}
    folders = {name: find_model(name) for name in zoo()}
    return {
        "models": [
            {
                "name": name,
                "description": folder.spec.description,
                "task": folder.spec.task,
                "batch": folder.spec.items,
                "inputs": {key: list(tensor.shape) for key, tensor in folder.spec.inputs.items()},
                "outputs": {key: list(tensor.shape) for key, tensor in folder.spec.outputs.items()},
                "frameworks": [key for key, adapter in adapters.items() if offered(folder, adapter)],
                **({"refused": _refused(folder, adapters.values())} if refusals else {}),
            }
            for name, folder in folders.items()
        ],
        "frameworks": [_framework(adapter) for adapter in adapters.values()],
    }


def _refused(folder: ModelFolder, adapters: Iterable[type[Framework]]) -> dict[str, str]:
    """Subject -> why it cannot run this model."""
    return {
        adapter.label(mode): reason
        for adapter in adapters
        for mode in adapter.modes
        if offered(folder, adapter) and (reason := adapter.refuses(folder, mode))
    }


def _framework(adapter: type[Framework]) -> FrameworkEntry:
    version = _version(adapter)
    return {
        "name": adapter.name,
        "subjects": list(adapter.subjects()),
        "version": version,
        "installed": version is not None,
        "missing": host.missing(adapter),
    }


def _version(adapter: type[Framework]) -> str | None:
    """The framework's version in its own environment or in this interpreter; None when it is not installed."""
    environment = environments.chosen(adapter)
    if environment is not None:
        return environment.version(adapter)
    return None if host.missing(adapter) else host.version(adapter)


def markdown(found: Catalogue) -> str:
    """A table of models and frameworks, with notes on the modes that cannot run.

    A cell has a tick when the framework can run the model, a cross when it cannot, and a dash when the model has no file for it.
    """
    from ..report import tables

    frameworks = [f for f in found["frameworks"] if any(f["name"] in model["frameworks"] for model in found["models"])]
    notes: dict[str, int] = {}
    rows = [
        [f"`{model['name']}`", *(_cell(model, framework, notes) for framework in frameworks)]
        for model in found["models"]
    ]
    lines = tables.markdown(["model", *(framework["name"] for framework in frameworks)], rows, ":-:")
    return "\n".join([*lines, "", *(f"{number}. {note}" for note, number in notes.items())])


def _cell(model: ModelEntry, framework: FrameworkEntry, notes: dict[str, int]) -> str:
    """One cell of the table. notes: text of every note so far -> its number; the notes of this cell are added."""
    if framework["name"] not in model["frameworks"]:
        return "–"
    refused = {subject: model["refused"][subject] for subject in framework["subjects"] if subject in model["refused"]}
    numbers = []
    for reason in dict.fromkeys(refused.values()):
        subjects = ", ".join(f"`{subject}`" for subject in refused if refused[subject] == reason)
        numbers.append(str(notes.setdefault(f"not {subjects}: {reason}", len(notes) + 1)))
    mark = "✗" if len(refused) == len(framework["subjects"]) else "✓"
    return f"{mark} <sup>{' '.join(numbers)}</sup>" if numbers else mark


def main(args: argparse.Namespace) -> int:
    found = catalogue(refusals=args.json or args.markdown)
    if args.json:
        print(json.dumps(found, indent=1))
    elif args.markdown:
        print(markdown(found))
    else:
        _print(found)
    return 0


def _print(found: Catalogue) -> None:
    from ..report import tables  # imported here, because JSON needs no tables
    from ..report.terminal import console
    from ..report.text import escape

    models = tables.borderless("models")
    for column in ("model", "takes", "gives", "frameworks", ""):
        models.add_column(column)
    for model in found["models"]:
        models.add_row(
            f"[bold]{escape(model['name'])}[/]",
            escape(_shapes(model["inputs"])),
            escape(_shapes(model["outputs"])),
            ", ".join(model["frameworks"]),
            escape(model["description"]),
        )
    subjects = tables.borderless("\nframeworks")
    for column in ("framework", "version", "subjects"):
        subjects.add_column(column)
    for framework in found["frameworks"]:
        subjects.add_row(
            f"[bold]{framework['name']}[/]",
            escape(framework["version"]) if framework["version"] else "[red]not installed[/]",
            ", ".join(framework["subjects"]),
        )
    out = console()
    out.print(models)
    out.print(subjects)


def _shapes(tensors: dict[str, list[int | str]]) -> str:
    return ", ".join(f"{name} ({', '.join(map(str, shape))})" for name, shape in tensors.items())
