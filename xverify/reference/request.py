"""Make a request from what the user asks for: check the settings, and fill in the defaults."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from .. import host
from ..errors import UsageError
from ..worker import allocator
from ..workload import optimizers
from ..workload.declaration import check, check_task, declared
from ..workload.options import CommonSettings, RunSettings, TrainingSettings
from ..workload.recipe import Recipe, parse_schedule
from ..workload.request import Request
from ..workload.spec import BATCH, ModelFolder, find_model
from .subjects import choose


def resolve(
    model: str | Path, subjects: Sequence[str] | None = None, settings: RunSettings | None = None
) -> tuple[Request, ModelFolder]:
    """Return the checked request with all defaults filled in, and the folder of the model. Raises UsageError.

    model: a name of the zoo, or a folder.
    subjects: as the user names them; None takes every installed framework that the model has.
    settings: with one task in ``settings.task``; when omitted, all settings have their defaults.
    """
    asked = settings or RunSettings()
    folder = find_model(model)
    _check(asked)
    recipe = _recipe(asked, folder) if asked.task == "train" else Recipe()
    optimizer = optimizers.optimizer(
        asked.optimizer or "sgd", asked.lr, asked.momentum, asked.nesterov, asked.weight_decay, recipe
    )
    chosen = choose(folder, subjects, asked.python or {}, asked.task)
    kept = {each.name: getattr(asked, each.name) for each in (*fields(CommonSettings), *fields(TrainingSettings))}
    kept |= {
        "batch": asked.batch or folder.spec.batch,
        "threads": asked.threads or len(asked.pin) or host.cores(),
        "weights": str(asked.weights or folder.weights or "") or None,
        "pin": tuple(asked.pin),
        "data": str(asked.data) if asked.data is not None else None,
        "python": chosen.python,
    }
    return Request(
        model=str(folder.path),
        subjects=tuple(adapter.label(mode) for adapter, mode in chosen.subjects),
        reference=chosen.reference,
        optimizer=optimizer if asked.task == "train" else None,
        notes=(*chosen.notes, *filter(None, [allocator.without_effect()])),
        **kept,
    ), folder


def _recipe(asked: RunSettings, folder: ModelFolder) -> Recipe:
    """The recipe of the spec, with what the user gave in the place of it. Raises UsageError."""
    spec, changes = folder.spec, dict[str, Any]()
    if asked.clip_norm is not None:
        changes |= {"clip_norm": asked.clip_norm, "clip_value": None, "clip_each": None}
    if asked.schedule is not None:
        changes["schedule"] = parse_schedule(asked.schedule)
    changes |= {what: value for what in ("accumulate", "average") if (value := getattr(asked, what)) is not None}
    recipe = replace(spec.training, **changes, amsgrad=asked.amsgrad or spec.training.amsgrad)
    parts = recipe.accumulate
    recipe.check_batch(asked.batch or spec.batch)
    for name, tensor in (*spec.inputs.items(), *spec.outputs.items()):
        if parts > 1 and tensor.shape[0] != BATCH:
            raise UsageError(
                f"accumulate is {parts}, and the first axis of {name} is not the batch: it cannot be split"
            )
    return recipe


def _check(asked: RunSettings) -> None:
    """Raise UsageError for a setting that cannot be used with any model."""
    options = declared(type(asked))
    check(options, vars(asked))
    check_task(options, vars(asked), asked.task)
    if asked.pin:
        check_cores(asked.pin)


def check_cores(pin: Sequence[int]) -> None:
    """Raise UsageError for a core that this process may not use."""
    if not hasattr(os, "sched_getaffinity"):
        raise UsageError("--pin: this system does not let a process be bound to cores")
    mine = sorted(os.sched_getaffinity(0))
    strange = [core for core in pin if core not in mine]
    if strange:
        raise UsageError(f"--pin {strange[0]}: this process may use the cores {', '.join(map(str, mine))}")
