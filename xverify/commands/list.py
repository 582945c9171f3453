from __future__ import annotations

import argparse
import json

from rich.table import Table

from .. import frameworks, host
from ..report import terminal
from ..request import offered
from ..spec import find_model, zoo

HELP = "the models, the frameworks and their modes, and which can run here"
EXAMPLE = "examples:\n  xverify list\n  xverify list --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as JSON, for programs")


def catalogue() -> dict[str, object]:
    """Models, frameworks and subjects as JSON values; imports no framework."""
    adapters = frameworks.load_all()
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
            }
            for name, folder in folders.items()
        ],
        "frameworks": [
            {
                "name": name,
                "subjects": list(adapter.subjects()),
                "version": host.version(adapter),
                "installed": not host.missing(adapter),
                "missing": host.missing(adapter),
            }
            for name, adapter in adapters.items()
        ],
    }


def main(args: argparse.Namespace) -> int:
    found = catalogue()
    if args.json:
        print(json.dumps(found, indent=1))
        return 0
    console = terminal.console()
    models = Table(title="models", title_justify="left", box=None, pad_edge=False)
    for column in ("model", "takes", "gives", "frameworks", ""):
        models.add_column(column)
    for model in found["models"]:  # type: ignore[attr-defined]
        models.add_row(
            f"[bold]{model['name']}[/]",
            _shapes(model["inputs"]),
            _shapes(model["outputs"]),
            ", ".join(model["frameworks"]),
            model["description"],
        )
    subjects = Table(title="\nframeworks", title_justify="left", box=None, pad_edge=False)
    for column in ("framework", "version", "subjects"):
        subjects.add_column(column)
    for framework in found["frameworks"]:  # type: ignore[attr-defined]
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
