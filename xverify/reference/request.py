"""What is to be run: a plain, serialisable record, checked before anything starts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .. import host
from ..environments import store as environments
from ..errors import UsageError, nearest
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..timing import plan
from ..workload import optimizers
from ..workload.optimizers import Optimizer
from ..workload.spec import ModelFolder, find_model

TASKS = ("forward", "train")
EFFORTS = tuple(plan.EFFORTS)
DEVICES = ("cpu", "cuda")
REFERENCE = "torch"


@dataclass(frozen=True)
class Request:
    """One run.

    python: framework -> interpreter that is not this one, named by the user or of its environment. timeout: seconds a
    request to a worker. strict: DRIFT fails. max_seconds: the budget of the whole run. pin: the cores that subjects may use.
    """

    model: str
    subjects: tuple[str, ...]
    reference: str
    task: str
    batch: int
    warmup: int | None
    rerun: int | None
    effort: str
    threads: int
    device: str
    seed: int
    cases: int
    weights: str | None
    trust: bool
    timeout: float
    strict: bool = False
    max_seconds: float | None = None
    pin: tuple[int, ...] = ()
    python: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    optimizer: Optimizer | None = None
    match_optimizer: bool = False
    data: str | None = None
    time_input: bool = False

    @property
    def trains(self) -> bool:
        return self.task == "train"


def resolve(
    model: str | Path,
    subjects: Sequence[str] | None = None,
    *,
    task: str = "forward",
    batch: int | None = None,
    warmup: int | None = None,
    rerun: int | None = None,
    effort: str = "quick",
    threads: int | None = None,
    device: str = "cpu",
    seed: int = 0,
    cases: int = 4,
    weights: str | Path | None = None,
    trust: bool = False,
    python: Mapping[str, str] | None = None,
    timeout: float = 1800.0,
    strict: bool = False,
    max_seconds: float | None = None,
    pin: Sequence[int] = (),
    optimizer: str | None = None,
    lr: float | None = None,
    momentum: float | None = None,
    nesterov: bool = False,
    weight_decay: float | None = None,
    match_optimizer: bool = False,
    data: str | Path | None = None,
    time_input: bool = False,
) -> tuple[Request, ModelFolder]:
    """Fill in what was left open, and refuse what cannot be run. Raises UsageError."""
    folder = find_model(model)
    interpreters = _interpreters(python or {})
    for name, value, least in (
        ("batch", batch, 1),
        ("warmup", warmup, 0),
        ("rerun", rerun, 1),
        ("threads", threads, 1),
        ("seed", seed, 0),
        ("cases", cases, 1),
    ):
        if value is not None and value < least:
            raise UsageError(f"--{name} is {value}: it must be at least {least}")
    for name, seconds in (("timeout", timeout), ("max-seconds", max_seconds)):
        if seconds is not None and not seconds > 0:
            raise UsageError(f"--{name} is {seconds:g}: it must be above 0 seconds")
    _check_cores(pin)
    for name, choice, known in (("task", task, TASKS), ("effort", effort, EFFORTS), ("device", device, DEVICES)):
        if choice not in known:
            raise UsageError(f"--{name} is {choice!r}{nearest(choice, known)} Known: {', '.join(known)}")
    if weights is not None and not Path(weights).is_file():
        raise UsageError(f"--weights {weights}: no such file")
    learns = optimizers.optimizer(optimizer or "sgd", lr, momentum, nesterov, weight_decay)
    asked = {
        "optimizer": optimizer, "lr": lr, "momentum": momentum, "nesterov": nesterov, "weight-decay": weight_decay,
        "match-optimizer": match_optimizer, "data": data, "time-input": time_input,
    }  # fmt: skip
    if task != "train":
        given = next((name for name, value in asked.items() if value not in (None, False)), None)
        if given is not None:
            raise UsageError(f"--{given} belongs to --task train; the task is {task}")
    chosen, notes = _subjects(folder, subjects, interpreters, task)
    adapters = [adapter for adapter, _ in chosen]
    reference = _reference(folder, adapters, interpreters)
    if task == "train" and reference != REFERENCE:
        raise UsageError(
            f"--task train is judged against {REFERENCE}, and {folder.path} has no {REFERENCE}.py that can run here; "
            "its forward pass can be compared: --task forward"
        )
    for adapter in dict.fromkeys([*adapters, frameworks.load(reference)]):
        environment = environments.chosen(adapter)
        if environment is None or adapter.name in interpreters:
            continue
        interpreters[adapter.name] = environment.interpreter
        if not environment.current:
            notes.append(
                f"the pins of {adapter.name}'s environment have changed: xverify env create {environment.name}"
            )
    return Request(
        model=str(folder.path),
        subjects=tuple(adapter.label(mode) for adapter, mode in chosen),
        reference=reference,
        task=task,
        batch=batch or folder.spec.batch,
        warmup=warmup,
        rerun=rerun,
        effort=effort,
        threads=threads or len(pin) or host.cores(),
        device=device,
        seed=seed,
        cases=cases,
        weights=str(weights) if weights else str(folder.weights) if folder.weights else None,
        trust=trust,
        timeout=timeout,
        strict=strict,
        max_seconds=max_seconds,
        pin=tuple(pin),
        python=interpreters,
        notes=tuple(notes),
        optimizer=learns if task == "train" else None,
        match_optimizer=match_optimizer,
        data=str(data) if data is not None else None,
        time_input=time_input,
    ), folder


def _check_cores(pin: Sequence[int]) -> None:
    if not pin:
        return
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError("--pin: this system does not let a process be bound to cores")
    mine = sorted(os.sched_getaffinity(0))
    strange = [core for core in pin if core not in mine]
    if strange:
        raise UsageError(f"--pin {strange[0]}: this process may use the cores {', '.join(map(str, mine))}")


def _interpreters(python: Mapping[str, str]) -> dict[str, str]:
    result = {}
    for name, path in python.items():
        frameworks.load(name)
        found = shutil.which(path)
        if found is None:
            raise UsageError(f"--python {name}={path}: no such interpreter")
        result[name] = str(Path(found).absolute())
    return result


def offered(folder: ModelFolder, adapter: type[Framework]) -> bool:
    """Whether the folder has this framework's file, or what an adapter that runs the export needs."""
    return folder.file(_file(adapter)) is not None


def _file(adapter: type[Framework]) -> str:
    return REFERENCE if adapter.runs_export else adapter.reads()


def _available(adapter: type[Framework], interpreters: Mapping[str, str]) -> bool:
    return adapter.name in interpreters or not host.missing(adapter) or environments.chosen(adapter) is not None


def _subjects(
    folder: ModelFolder, subjects: Sequence[str] | None, interpreters: Mapping[str, str], task: str
) -> tuple[list[tuple[type[Framework], str]], list[str]]:
    if subjects is not None:
        chosen = list(dict.fromkeys(frameworks.parse_subject(text) for text in subjects if text.strip()))
        if not chosen:
            raise UsageError("--subjects is empty: name at least one, e.g. torch:eager,jittor (see xverify list)")
        for adapter, _ in chosen:
            if not offered(folder, adapter):
                raise UsageError(f"{adapter.name} cannot run {folder.name}: {folder.code} has no {_file(adapter)}.py")
        return chosen, []
    notes = []
    chosen = []
    for adapter in sorted(frameworks.load_all().values(), key=order):
        if not adapter.default_modes or not offered(folder, adapter) or (task == "train" and not adapter.trains):
            continue
        if _available(adapter, interpreters):
            chosen += [(adapter, mode) for mode in adapter.default_modes]
        else:
            notes.append(f"{adapter.name} is not covered: it is not installed ({environments.remedy(adapter)})")
    if not chosen:
        files = ", ".join(path.name for path in sorted(folder.code.glob("*.py")))
        raise UsageError(
            f"nothing to run: no framework that {folder.path} defines is installed (it has {files}); see xverify doctor"
        )
    return chosen, notes


def order(adapter: type[Framework]) -> tuple[int, str]:
    """The usual order of rows: the reference first, as the baseline; whatever runs its export last."""
    return (0 if adapter.name == REFERENCE else 2 if adapter.runs_export else 1), adapter.name


def _reference(folder: ModelFolder, chosen: list[type[Framework]], interpreters: Mapping[str, str]) -> str:
    torch = frameworks.load(REFERENCE)
    if offered(folder, torch) and _available(torch, interpreters):
        return REFERENCE
    own = [adapter.name for adapter in chosen if not adapter.runs_export]
    if not own:
        raise UsageError(f"{folder.name} needs {REFERENCE} as its reference: {environments.remedy(torch)}")
    return own[0]
