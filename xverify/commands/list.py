from __future__ import annotations

import argparse
import json
from typing import Any

from .. import host
from ..environments import store as environments
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..reference.request import offered, order
from ..report import tables, terminal
from ..workload.spec import find_model, zoo

HELP = "the models, the frameworks and their modes, and which can run here"
EXAMPLE = "examples:\n  xverify list\n  xverify list --json\n  xverify list --markdown"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON, for programs")
    form.add_argument("--markdown", action="store_true", help="which framework runs which model, as a Markdown table")


def catalogue() -> dict[str, Any]:
    """Models, frameworks and subjects as JSON values; imports no framework."""
    adapters = {adapter.name: adapter for adapter in sorted(frameworks.load_all().values(), key=order)}
    folders = {name: find_model(name) for name in zoo()}
    return {
        "models": [
            {
                "name": name,
                "description": folder.spec.description,
                "task": folder.spec.task,
                "batch": folder.spec.batch,
                "inputs": {key: list(tensor.shape) for key, tensor in folder.spec.inputs.items()},
                "outputs": {key: list(tensor.shape) for key, tensor in folder.spec.outputs.items()},
                "frameworks": [key for key, adapter in adapters.items() if offered(folder, adapter)],
                "refused": {
                    adapter.label(mode): reason
                    for adapter in adapters.values()
                    for mode in adapter.modes
                    if offered(folder, adapter) and (reason := adapter.refuses(folder, mode))
                },
            }
            for name, folder in folders.items()
        ],
        "frameworks": [
            {
                "name": name,
                "subjects": list(adapter.subjects()),
                "version": _version(adapter),
                "installed": _version(adapter) is not None,
                "missing": host.missing(adapter),
            }
            for name, adapter in adapters.items()
        ],
    }


def _version(adapter: type[Framework]) -> str | None:
    """The framework's version, in this interpreter or in an environment of its own; None when it is nowhere."""
    environment = environments.chosen(adapter)
    if environment is not None:
        return environment.version(adapter)
    return None if host.missing(adapter) else host.version(adapter)


def markdown(found: dict[str, Any]) -> str:
    """Models by frameworks: a tick, a cross, or a dash where the zoo has no file; and a note for every mode that cannot."""
    frameworks = [f for f in found["frameworks"] if any(f["name"] in model["frameworks"] for model in found["models"])]
    notes: dict[str, int] = {}
    rows = [
        [f"`{model['name']}`", *(_cell(model, framework, notes) for framework in frameworks)]
        for model in found["models"]
    ]
    lines = tables.markdown(["model", *(framework["name"] for framework in frameworks)], rows, ":-:")
    return "\n".join([*lines, "", *(f"{number}. {note}" for note, number in notes.items())])


def _cell(model: dict[str, Any], framework: dict[str, Any], notes: dict[str, int]) -> str:
    """notes: the text of every note so far -> its number; this cell's are added."""
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
    found = catalogue()
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    if args.markdown:
        print(markdown(found))
        return 0
    console = terminal.console()
    models = tables.borderless("models")
    for column in ("model", "takes", "gives", "frameworks", ""):
        models.add_column(column)
    for model in found["models"]:
        models.add_row(
            f"[bold]{model['name']}[/]",
            _shapes(model["inputs"]),
            _shapes(model["outputs"]),
            ", ".join(model["frameworks"]),
            model["description"],
        )
    subjects = tables.borderless("\nframeworks")
    for column in ("framework", "version", "subjects"):
        subjects.add_column(column)
    for framework in found["frameworks"]:
        subjects.add_row(
            f"[bold]{framework['name']}[/]",
            framework["version"] if framework["installed"] else "[red]not installed[/]",
            ", ".join(framework["subjects"]),
        )
    console.print(models)
    console.print(subjects)
    return 0


def _shapes(tensors: dict[str, list[int | str]]) -> str:
    return ", ".join(f"{name} ({', '.join(map(str, shape))})" for name, shape in tensors.items())
