"""The conditions of a run for a page: what was not tested, the machine, and a command that asks for the same."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ..results.records import Result, Row
from ..results.verdicts import Verdict
from ..workload.declaration import Option, declared
from ..workload.options import CommonSettings, TrainingSettings
from .charts import layers_of
from .notes import few

SHOWN = 8  # names in a sentence
OF_OPTIMIZERS = ("lr", "momentum", "weight_decay")


def untested(result: Result) -> Iterator[str]:
    """Sentences on what was not tested."""
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
    for row in result.rows:
        yield from (f"{row.subject}, {row.task}: {says}" for says in _of_row(row))


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
    found = layers_of(row)
    for what, names in (
        (
            "layers that were not captured, so that each was checked together with the glue code",
            found.missing if found else (),
        ),
        ("layers of which some call was not captured", found.partial if found else ()),
        ("layers that the reference does not call on these inputs", found.uncalled if found else ()),
        ("parameters whose gradient is rounding alone", row.training.untested if row.training is not None else ()),
    ):
        if names:
            yield f"{what} ({len(names)}): {few(names, SHOWN)}"
    if found is not None and found.stopped:
        yield found.stopped


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
    """A command that asks for the same, as far as a result holds the settings."""
    settings = result.settings
    if settings.task == "check":
        against = ["--against", settings.reference] if settings.reference else []
        return shlex.join(["xverify", "check", *settings.model.split(", "), *against])
    words = ["xverify", "run", settings.model or result.model, "--task", ",".join(result.tasks)]
    if settings.subjects:
        words += ["--subjects", ",".join(settings.subjects)]
    for option in (*declared(CommonSettings), *declared(TrainingSettings)):
        if option.name != "task":
            words += _written(option, getattr(settings, option.name))
    if settings.optimizer is not None:
        words += ["--optimizer", settings.optimizer.name]
        for name in OF_OPTIMIZERS:
            words += [f"--{name.replace('_', '-')}", f"{getattr(settings.optimizer, name):g}"]
    return shlex.join(words)


def _written(option: Option, value: object) -> list[str]:
    """An option on the command line; [] for its default."""
    if value in (option.default, None, (), {}) or value == "unstated":
        return []
    if value is True:
        return [option.flag]
    if isinstance(value, dict):
        return [word for key, each in value.items() for word in (option.flag, f"{key}={each}")]
    if isinstance(value, (tuple, list)):
        return [option.flag, ",".join(map(str, value))]
    return [option.flag, f"{value:g}" if isinstance(value, float) else str(value)]
