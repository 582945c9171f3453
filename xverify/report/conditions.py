"""The conditions of a run for a page: what was not tested, the machine, and the command that asks for the same."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace

from ..results.records import Result, Row
from ..results.verdicts import Verdict
from ..workload.asked import Asked
from ..workload.declaration import declared
from ..workload.options import CommonSettings, RunSettings, TrainingSettings
from ..workload.sizes import BATCH
from . import check
from .notes import calls, few

TEST = "test: "  # how the note begins that names the test of a result
SHOWN = 8  # names in a sentence
OF_OPTIMIZERS = ("lr", "momentum", "weight_decay")


def facts(result: Result) -> Iterator[str]:
    """What a reader of the page alone asks first: the test, when, where, and by which version."""
    yield from (note for note in result.notes if note.startswith(TEST))
    if result.created:
        known = re.fullmatch(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d):[\d.]+\+00:00", result.created)
        yield f"{known[1]} {known[2]} UTC" if known else result.created
    host = result.host
    yield ", ".join(filter(None, (host.name, host.cpu, f"{host.cores} cores" if host.cores else "")))
    yield f"xverify {result.xverify}"


def untested(result: Result) -> Iterator[str]:
    """Sentences on what was not tested. There is always something."""
    yield from _always(result)
    for part in result.by_task():
        reference = part.reference
        if reference.random:
            yield f"Nothing was compared with the reference, because it is random: {reference.random}"
        if reference.inconsistent:
            yield f"Nothing was compared with the reference: {reference.inconsistent}"
        if reference.replay_problem:
            yield f"No layer was checked by itself: {reference.replay_problem}"
        if reference.untested:
            count = len(reference.untested)
            yield (
                f"{count} of {count + reference.tested} weights and constants: a fault in them would not show on these inputs: "
                f"{few(reference.untested, SHOWN)}"
            )
    subjects: dict[str, list[str]] = {}  # what was not tested -> of which rows
    for row in result.rows:
        for says in _of_row(row):
            subjects.setdefault(says, []).append(f"{row.subject}, {row.task}")
    yield from (f"{'; '.join(names)}: {says}" for says, names in subjects.items())


def _always(result: Result) -> Iterator[str]:
    """What no run of this kind tests."""
    inputs, several = result.inputs, result.inputs.cases != 1
    kind = f" ({inputs.kind})" if inputs.kind else ""
    yield f"other inputs than the {inputs.cases} {'cases' if several else 'case'} that were compared{kind}"
    yield from calls(result)
    if result.settings.task == "check":
        yield from check.agreement(result)
        return
    if result.weights.source:
        yield f"other weights than these: {result.weights.source}"
    sizes = dict.fromkeys(str(row.batch) for row in result.rows)
    yield f"other batch sizes than {', '.join(sizes)}" if sizes else "every batch size"
    for name in dict.fromkeys(name for row in result.rows for name in row.sizes if name != BATCH):
        known = dict.fromkeys(str(row.sizes[name]) for row in result.rows if name in row.sizes)
        yield f"other sizes of {name} than {', '.join(known)}"
    if "train" not in result.tasks:
        yield "training: xverify run MODEL --task train compares it"


def _of_row(row: Row) -> Iterator[str]:
    """What was not tested of one row."""
    if row.status != "ok":
        yield f"{row.status}: {row.reason or 'no reason is known'}"
    elif row.error is None:
        yield "it has no verdict"
    elif row.error.verdict == Verdict.UNTESTED:
        yield f"UNTESTED: {row.error.reason or 'nothing was compared that could have shown a fault'}"
    elif row.error.compared < row.error.expected:
        yield f"{row.error.expected - row.error.compared} of {row.error.expected} outputs were not compared"
    layers = row.layers
    if row.error is not None and row.error.unreached:
        yield f"no input case reached everything ({len(row.error.unreached)}): {'; '.join(row.error.unreached)}"
    for what, names in (
        (
            "layers that were not captured, so that each was checked together with the glue code",
            layers.missing if layers else (),
        ),
        ("layers of which some call was not captured", layers.partial if layers else ()),
        ("layers that the reference does not call on these inputs", layers.uncalled if layers else ()),
        ("parameters whose gradient is rounding alone", row.training.untested if row.training is not None else ()),
    ):
        if names:
            yield f"{what} ({len(names)}): {few(names, SHOWN)}"
    if layers is not None and layers.stopped:
        yield layers.stopped


def machine(result: Result) -> Iterator[tuple[str, str]]:
    """Name -> value: the machine, versions and digests."""
    host = result.host
    if host.name:
        yield "name", host.name
    yield "processor", f"{host.cpu}, {host.cores} cores, {host.memory_gib:.1f} GiB"
    yield "system", f"{host.system}, Python {host.python}"
    yield "xverify", f"{result.xverify}, {result.created}"
    for part in result.by_task():
        task = f", {', '.join(part.tasks)}" if len(result.tasks) > 1 else ""
        yield f"weights{task}", f"{part.weights.digest or 'no digest'}; {part.weights.source}"
        yield f"inputs{task}", f"{part.inputs.digest or 'no digest'}; {part.inputs.cases} cases, {part.inputs.kind}"
        yield f"reference{task}", f"{part.reference.framework}, {part.reference.precision}; {part.reference.floor}"
    for row in result.rows:
        if row.environment:
            yield f"{row.subject}, {row.task}", ", ".join(f"{name} {value}" for name, value in row.environment.items())
    yield "rule", result.rule


def command(result: Result) -> str:
    """The command that asks for the same, quoted for a shell. An earlier version's file holds only some of the options."""
    # Training is at one size of several, so that the other part says what was asked for.
    sorted_parts = sorted(result.by_task(), key=lambda part: bool(part.settings.other_sizes))
    parts = [part.settings.asked for part in sorted_parts]
    if not parts[-1].command:
        return shlex.join(["xverify", *_of_earlier(result).words()])
    options = {name: values for part in parts for name, values in part.options.items()}
    asked = replace(parts[-1], options=options)
    if len(parts) > 1:
        asked = asked.changed(task=result.tasks)
    return shlex.join(["xverify", *asked.words()])


def _of_earlier(result: Result) -> Asked:
    """What was asked for, as far as the other settings say."""
    settings = result.settings
    if settings.task == "check":
        asked = Asked("check", tuple(settings.model.split(", ")))
        return asked.changed(against=settings.reference) if settings.reference else asked
    options = (*declared(CommonSettings), *declared(TrainingSettings))
    values = {each.name: getattr(settings, each.name) for each in options}
    if settings.allocator == "unstated":
        del values["allocator"]
    if settings.optimizer is not None:
        values |= {name: getattr(settings.optimizer, name) for name in OF_OPTIMIZERS}
        values |= {"optimizer": settings.optimizer.name}
    task, subjects = ",".join(result.tasks), settings.subjects
    return Asked.of("run", [settings.model or result.model], RunSettings(**values), task=task, subjects=subjects)
