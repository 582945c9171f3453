"""Choose the subjects of a run, its reference, and the interpreters in which they run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import host
from ..environments import store as environments
from ..errors import UsageError, nearest
from ..framework import discovery as frameworks
from ..framework import ports
from ..framework.adapter import Framework
from ..workload.spec import ModelFolder
from . import variants

REFERENCE = "torch"


@dataclass(frozen=True)
class Chosen:
    """The subjects of a run, in order.

    folder: the model folder, with the files elsewhere that subjects name.
    subjects: adapter and mode of each.
    reference: the framework, or the variant of one, whose outputs the others are compared with.
    python: framework -> interpreter, for frameworks that run in another interpreter than this one.
    notes: what the user should know about this choice.
    """

    folder: ModelFolder
    subjects: tuple[tuple[type[Framework], str], ...]
    reference: str
    python: Mapping[str, str]
    notes: tuple[str, ...]


def choose(
    folder: ModelFolder, subjects: Sequence[str] | None, python: Mapping[str, str], task: str, plan: str = ""
) -> Chosen:
    """Choose the subjects of a run and their reference. Raises UsageError.

    subjects: as the user names them; None takes every installed framework that the model has.
    python: framework -> interpreter, as the user names them. plan: of several ranks that train each subject; "" for one process.
    """
    interpreters = _interpreters(python)
    if subjects is not None:
        folder = replace(folder, ports=variants.elsewhere(subjects))
    chosen, notes = _named(folder, subjects) if subjects is not None else _installed(folder, interpreters, task, plan)
    adapters = [adapter for adapter, _ in chosen]
    reference = _reference(folder, adapters, interpreters)
    if task == "train" and reference != REFERENCE:
        raise UsageError(
            f"--task train is judged against {REFERENCE}, and {folder.path} has no {REFERENCE}.py that can run here; "
            "use --task forward to compare the forward pass"
        )
    if task == "decode" and reference != REFERENCE:
        raise UsageError(
            f"--task decode is judged against {REFERENCE}, and {folder.path} has no {REFERENCE}.py that can run here"
        )
    notes += variants.shared_code(folder, adapters, reference)
    for adapter in dict.fromkeys([*adapters, frameworks.named(reference)]):
        environment = environments.chosen(adapter)
        if environment is None or adapter.name in interpreters:
            continue
        interpreters[adapter.name] = environment.interpreter
        if not environment.current:
            notes.append(
                f"the pins of {adapter.name}'s environment have changed: xverify env create {environment.name} makes it again"
            )
    return Chosen(folder, tuple(chosen), reference, interpreters, tuple(notes))


def offered(folder: ModelFolder, adapter: type[Framework]) -> bool:
    """Whether the folder has the file of this framework, or of the framework whose export it runs."""
    return folder.file(_file(adapter)) is not None


def _does(adapter: type[Framework], task: str, plan: str) -> bool:
    """Whether the framework does a task where the user names no subject. An export of a decoder is made where it is asked for."""
    trains = plan in adapter.plans if plan else adapter.trains
    return {"train": trains, "decode": adapter.decodes and not adapter.runs_export}.get(task, True)


def order(adapter: type[Framework]) -> tuple[int, str, str]:
    """The sort key of rows when the user names no subject: the reference is first, and frameworks that run its export are last."""
    return (0 if adapter.name == REFERENCE else 2 if adapter.runs_export else 1), adapter.name, adapter.variant


def _file(adapter: type[Framework]) -> str:
    return REFERENCE if adapter.runs_export else adapter.reads()


def _interpreters(python: Mapping[str, str]) -> dict[str, str]:
    result = {}
    for name, path in python.items():
        frameworks.load(name)
        program = shutil.which(path)
        if program is None:
            raise UsageError(f"--python {name}={path}: no such interpreter")
        result[name] = str(Path(program).absolute())
    return result


def _available(adapter: type[Framework], interpreters: Mapping[str, str]) -> bool:
    return adapter.name in interpreters or not host.missing(adapter) or environments.chosen(adapter) is not None


def _named(folder: ModelFolder, subjects: Sequence[str]) -> tuple[list[tuple[type[Framework], str]], list[str]]:
    """(the subjects that the user names, an empty list of notes)."""
    chosen = list(dict.fromkeys(frameworks.parse_subject(text) for text in subjects if text.strip()))
    if not chosen:
        raise UsageError("--subjects is empty: name at least one, e.g. torch:eager,jittor (see xverify list)")
    if not all(text.strip() for text in subjects):
        raise UsageError(f"--subjects {','.join(subjects)}: a name is empty; leave a comma out")
    for adapter, _ in chosen:
        variants.check(adapter)
        if not offered(folder, adapter):
            if adapter.suffix != ports.CODE:
                raise UsageError(f"{adapter.name} runs a file, which a subject names: write NAME=FILE{adapter.suffix}")
            raise UsageError(
                f"{adapter.called()} cannot run {folder.name}: {folder.code} has no {_file(adapter)}.py{_similar(folder, adapter)}"
            )
    return chosen, []


def _similar(folder: ModelFolder, adapter: type[Framework]) -> str:
    """The file of a variant that may be meant by another one; "" for a framework's own file."""
    others = [each.file_name() for each in variants.of_folder(folder)] if adapter.variant else []
    return nearest(adapter.file_name(), others).rstrip(".") if others else ""


def _installed(
    folder: ModelFolder, interpreters: Mapping[str, str], task: str, plan: str
) -> tuple[list[tuple[type[Framework], str]], list[str]]:
    """(the default modes of every installed framework that the model has, a note for each framework that is not installed)."""
    notes = []
    chosen = []
    known = (*frameworks.load_all().values(), *variants.of_folder(folder))
    for adapter in sorted(known, key=order):
        if not adapter.default_modes or not offered(folder, adapter) or not _does(adapter, task, plan):
            continue
        if _available(adapter, interpreters):
            able = adapter.decoding_modes if task == "decode" else None
            chosen += [(adapter, mode) for mode in adapter.default_modes if able is None or mode in able]
        else:
            notes.append(f"{adapter.called()} is not covered: it is not installed ({environments.remedy(adapter)})")
    if not chosen:
        files = ", ".join(path.name for path in sorted(folder.code.glob("*.py")))
        raise UsageError(
            f"nothing to run: no framework that {folder.path} defines is installed (it has {files}); see xverify doctor"
        )
    return chosen, notes


def _reference(folder: ModelFolder, chosen: list[type[Framework]], interpreters: Mapping[str, str]) -> str:
    torch = frameworks.load(REFERENCE)
    if offered(folder, torch) and _available(torch, interpreters):
        return REFERENCE
    own = [adapter.called() for adapter in chosen if not adapter.runs_export and adapter.path is None]
    if not own:
        raise UsageError(f"{folder.name} needs {REFERENCE} as its reference: {environments.remedy(torch)}")
    return own[0]
