"""Make a request from what the user asks for: check the settings, and fill in the defaults."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path

from .. import host
from ..errors import Failed, UsageError, nearest
from ..framework import ports
from ..processes import allocator
from ..workload import optimizers
from ..workload.asked import Asked
from ..workload.declaration import check, check_task, declared
from ..workload.decoding import sequences_of
from ..workload.launch import Launch, launch
from ..workload.objective import has_own_step
from ..workload.options import (
    OF_TIMING,
    OWN_WEIGHTS,
    PROBE_WEIGHTS,
    CommonSettings,
    OptimizerSettings,
    RunSettings,
    TrainingSettings,
)
from ..workload.ranks import ranks
from ..workload.recipe import Recipe
from ..workload.request import Request
from ..workload.schedule import parse_schedule
from ..workload.sizes import BATCH as SIZED_BATCH
from ..workload.sizes import Size, combinations, first_of, naming, sentence
from ..workload.sizes import check as check_sizes
from ..workload.spec import BATCH, ModelFolder, find_model
from . import variants
from .subjects import Chosen, choose

# Settings of the step that xverify makes. They have no meaning where the model files make the step.
OF_A_MADE_STEP = ("match_optimizer", "dropout_masks")
MOST_OWN_STEPS = (
    1000  # of the model files that are compared: each is made five times, in float64, and has arrays on the disk
)


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
    sizes = sizes_asked(asked, folder)
    folder, first, others = _at_sizes(asked, folder, sizes)
    batch = first.get(SIZED_BATCH) or (asked.batch if isinstance(asked.batch, int) else folder.spec.items)
    recipe = _recipe(asked, folder, batch) if asked.task == "train" else Recipe()
    if asked.task == "train":
        _check_own_step(asked, folder)
        _check_ranks(asked, folder, batch)
    if asked.task == "decode":
        sequences_of(folder)
    optimizer = optimizers.optimizer(
        asked.optimizer or "sgd", asked.lr, asked.momentum, asked.nesterov, asked.weight_decay, recipe
    )
    if folder.spec.batch is None and (batch > 1 or SIZED_BATCH in sizes):
        raise UsageError(f"--batch {asked.batch}: {folder.path / 'spec.py'} has batch=None: an item is the whole input")
    chosen = choose(folder, subjects, asked.python or {}, asked.task, (asked.plan or "ddp") if asked.ranks else "")
    kept = {each.name: getattr(asked, each.name) for each in (*fields(CommonSettings), *fields(TrainingSettings))}
    kept |= {
        "batch": batch,
        "threads": asked.threads or len(asked.pin) or host.cores(),
        "weights": None if asked.weights == PROBE_WEIGHTS else str(asked.weights or folder.weights or "") or None,
        "pin": tuple(asked.pin),
        "data": str(asked.data) if asked.data is not None else None,
        "python": chosen.python,
        "no_timing": asked.no_timing or asked.task == "decode" or asked.launcher is not None,
        "shards": tuple(asked.shards),
        "hosts": tuple(asked.hosts),
    }
    folder = chosen.folder
    _check_graphs(folder, kept["weights"])
    texts = tuple(variants.text(*each, folder) for each in chosen.subjects)
    return Request(
        model=str(folder.path),
        subjects=texts,
        reference=chosen.reference,
        optimizer=optimizer if asked.task == "train" else None,
        sizes=first,
        other_sizes=others,
        notes=(
            *chosen.notes,
            *filter(None, [allocator.without_effect()]),
            *([sentence(sizes)] if sizes else []),
            *(_on_ranks(asked.ranks, kept["threads"], chosen) if asked.ranks and not kept["no_timing"] else ()),
        ),
        asked=Asked.of("run", [model], asked, task=asked.task, subjects=texts),
        **kept,
    ), folder


def _at_sizes(
    asked: RunSettings, folder: ModelFolder, sizes: Mapping[str, Sequence[int]]
) -> tuple[ModelFolder, Size, tuple[Size, ...]]:
    """(the folder at the first size, the first size, the others). sizes: those of ``sizes_asked``. Raises UsageError."""
    first = first_of(sizes)
    others = tuple(each for each in combinations(sizes) if each != first)
    if others and asked.task != "forward":
        what, does = ("training", "trains") if asked.task == "train" else ("decoding", "decodes")
        raise UsageError(
            f"several sizes are for outputs, and {what} is judged at one: write --task forward,{asked.task}, which {does} at "
            "the first size, or give one size"
        )
    for each in others:
        at_size(folder, each)
    return at_size(folder, first), first, others


def sizes_asked(asked: RunSettings, folder: ModelFolder) -> dict[str, Sequence[int]]:
    """Name of an axis -> the sizes that the user gave it; {} where only one batch size is given. Raises UsageError."""
    sizes = {SIZED_BATCH if name == BATCH else name: each for name, each in (asked.sizes or {}).items()}
    known = [SIZED_BATCH, *folder.spec.sizes]
    for name in sizes:
        if name not in known:
            raise UsageError(
                f"--sizes {name}=...: {folder.path / 'spec.py'} names no axis {name!r}{nearest(name, known)} It names: "
                f'{", ".join(known)}. An axis gets a name by TensorSpec(({BATCH!r}, "seq")) and ModelSpec(sizes={{"seq": 16}})'
            )
    if asked.batch is not None and SIZED_BATCH in sizes:
        raise UsageError("--batch and --sizes batch=... both give the size of the batch: leave one of them out")
    if isinstance(asked.batch, Sequence):
        sizes = {SIZED_BATCH: asked.batch, **sizes}
    check_sizes(sizes)
    return sizes


def at_size(folder: ModelFolder, size: Size) -> ModelFolder:
    """The folder with a spec of this size. Raises SpecError for a size that some axis cannot have."""
    own = {name: value for name, value in size.items() if name != SIZED_BATCH}
    with naming(size):
        return replace(folder, spec=folder.spec.at(own)) if own else folder


def _recipe(asked: RunSettings, folder: ModelFolder, batch: int) -> Recipe:
    """The recipe of the spec, with what the user gave in the place of it. Raises UsageError."""
    spec, recipe = folder.spec, folder.spec.training
    recipe = replace(recipe, amsgrad=asked.amsgrad or recipe.amsgrad, accumulate=asked.accumulate or recipe.accumulate)
    if asked.clip_norm is not None:
        recipe = replace(recipe, clip_norm=asked.clip_norm, clip_value=None, clip_each=None)
    if asked.schedule is not None:
        recipe = replace(recipe, schedule=parse_schedule(asked.schedule))
    if asked.average is not None:
        recipe = replace(recipe, average=asked.average)
    if asked.precision is not None or asked.loss_scale is not None:
        scale = asked.loss_scale or (recipe.loss_scale if asked.precision is None else None)
        recipe = replace(recipe, precision=asked.precision or recipe.precision, loss_scale=scale)
    parts = recipe.accumulate
    recipe.check_batch(batch)
    for name, tensor in (*spec.inputs.items(), *spec.outputs.items()):
        if parts > 1 and tensor.shape[0] != BATCH:
            raise UsageError(
                f"accumulate is {parts}, and the first axis of {name} is not the batch: it cannot be split"
            )
    return recipe


def _check_ranks(asked: RunSettings, folder: ModelFolder, batch: int) -> None:
    """Raise UsageError for settings with which several ranks cannot train."""
    found = ranks(asked.ranks, asked.plan, asked.shards, batch)
    started = launch(asked.launcher, asked.hosts, asked.rendezvous, asked.ranks)
    if found is None:
        return
    if started is not None:
        _check_launcher(asked, started)
    if found.items and not any(BATCH in tensor.shape for tensor in folder.spec.inputs.values()):
        raise UsageError(
            f"--plan {found.plan}: no input of {folder.name} has an axis {BATCH!r}, so no batch can be divided"
        )
    for name, given in (
        ("--dropout-masks", asked.dropout_masks),
        ("--seeds", asked.seeds),
        ("--device cuda", asked.device != "cpu"),
    ):
        if given:
            raise UsageError(f"{name} is not supported with --ranks: leave one of them out")


def _on_ranks(count: int, threads: int, chosen: Chosen) -> Iterator[str]:
    """What the speed of so many ranks means. threads: those of a process that trains alone."""
    devices = {adapter.ranks_are_devices for adapter, _ in chosen.subjects if adapter.plans}
    each = max(1, threads // count)
    if False in devices:
        yield f"each of {count} ranks has {each} thread{'s' * (each > 1)}, and one process that trains alone has {threads}"
    if True in devices:
        has = "one thread" if threads == 1 else f"{threads} threads"
        yield f"the process of {count} devices has {has}, and so has that of one device alone"
    if devices:
        yield "all ranks are on this machine: their speed is not that of several machines"


def _check_launcher(asked: RunSettings, started: Launch) -> None:
    """Raise UsageError for a launcher that is not installed, or that cannot do what is asked."""
    program = started.words[0]
    if not started.here and shutil.which(program) is None:
        raise UsageError(f"--launcher {program}: this program is not installed here")
    if asked.pin:
        raise UsageError("--pin is not supported with --launcher: leave one of them out")


def _check_own_step(asked: RunSettings, folder: ModelFolder) -> None:
    """Raise UsageError for settings of an optimizer where the model files make the whole step."""
    try:
        own = has_own_step(folder)
    except Failed:  # a file that is no Python is told when its model is built
        return
    given = [each.name for each in fields(OptimizerSettings) if getattr(asked, each.name) not in (None, False)]
    other = [name for name in OF_A_MADE_STEP if getattr(asked, name) not in (None, False)]
    if own and other:
        raise UsageError(
            f"--{other[0].replace('_', '-')} is not supported for {folder.name}, whose files make the whole step (train_step)"
        )
    if own and given:
        raise UsageError(
            f"--{given[0].replace('_', '-')} has no effect on {folder.name}: its files make the whole step (train_step), with the "
            "optimizers of train_state; set it there"
        )
    if own and (asked.steps or 0) > MOST_OWN_STEPS:
        raise UsageError(
            f"--steps {asked.steps}: the files of {folder.name} make the whole step (train_step), and every step is compared; "
            f"name {MOST_OWN_STEPS} steps at most"
        )
    if own and folder.spec.training:
        raise UsageError(
            f"{folder.path / 'spec.py'} has training=Recipe(...), which has no effect: the model files make the whole step "
            "(train_step); leave out one of the two"
        )


def _check_graphs(folder: ModelFolder, weights: str | None) -> None:
    """Raise UsageError for an ONNX file among the subjects that lacks a tensor of the spec's ``cache``, or for a reference without
    weights.
    """
    for name, code in folder.ports.items():
        if ports.is_graph(code.file) and folder.spec.cache:
            _check_cache(folder, code.file)
        if ports.is_graph(code.file) and weights is None:
            raise UsageError(
                f"--subjects {name}={code.file}: an ONNX file keeps its own weights, and the reference would get others: give it "
                f"those that the file was made of, with --weights FILE, or with --weights {OWN_WEIGHTS} where build() loads them"
            )


def _check_cache(folder: ModelFolder, file: Path) -> None:
    """Raise UsageError where a graph has no input or output of a name that ``cache`` of the spec gives."""
    cache = folder.spec.cache
    for what, wanted, known in zip(("input", "output"), (cache, cache.values()), ports.tensors_of(file)):
        for name in wanted:
            if name not in known:
                raise UsageError(
                    f"{folder.path / 'spec.py'}: cache names the {what} {name!r}, and {file.name} has no such {what}"
                    f"{nearest(name, known)} Its {what}s: {', '.join(known)}"
                )


def _check(asked: RunSettings) -> None:
    """Raise UsageError for a setting that cannot be used with any model."""
    options = declared(type(asked))
    check(options, vars(asked))
    check_task(options, vars(asked), asked.task)
    given = [each.flag for each in options if each.name in OF_TIMING and getattr(asked, each.name) != each.default]
    if asked.task == "decode" and given:
        raise UsageError(f"{given[0]} says how subjects are timed, and --task decode times nothing: leave it out")
    if asked.launcher is not None and given:
        raise UsageError(
            f"{given[0]} says how subjects are timed, and the processes of --launcher are not: leave it out"
        )
    if asked.no_timing and given:
        raise UsageError(
            f"{given[0]} says how subjects are timed, and --no-timing that they are not: leave one of them out"
        )
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
