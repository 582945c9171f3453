"""The sentences around a reproduced table, and the list of all experiments."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from ..report.numbers import duration
from ..report.text import escape
from .records import QUICK_SECONDS, WHERE, Experiment, Part, Reproduction, Source
from .table import TableRow


def title(part: Part, scale: float) -> str:
    """The title of the table of a part: what is timed, and at which scale."""
    warmup, steps = part.scaled(scale)
    text = f"{part.title}: {steps:,} steps timed after {warmup:,} to warm up"
    if scale < 1:
        text += f"; {steps:,} of {part.steps:,} steps: elapsed is measured, not extrapolated"
    return text


def part_notes(
    done: Reproduction, part: Part, rows: Sequence[TableRow], explained: Iterable[str] = ()
) -> Iterator[str]:
    """The sentences under the table of a part, one in each line.

    explained: subjects whose reasons are printed elsewhere.
    """
    told = (*explained, *(row.subject for row in rows if row.reason in _refusals(done, part)))
    yield from (f"{row.subject}: {row.reason}" for row in rows if row.reason and row.subject not in told)
    for row in rows:
        named = dict.fromkeys(each.named for each in row.published.values() if each.named)
        yield from (f"{row.subject}: published as {name}" for name in named)
    for source in done.experiment.sources:
        if any(source.name in row.published for row in rows):
            yield f"published, {source.name}: {source.describe()}"
    yield from _machine(done, part)
    for source in done.experiment.sources:
        yield from _order(source, rows)


def closing_notes(done: Reproduction) -> Iterator[str]:
    """The sentences at the end of the whole report, one in each line."""
    experiment = done.experiment
    yield f"data: {done.data}"
    if done.repeats > 1:
        yield f"{done.repeats} repeats, each with new processes: means, with the lowest and the highest elapsed time"
    yield (
        "elapsed: the sum of all timed steps, also those of noisy rounds; s/step, items a second and time ratio: medians of the "
        "quiet rounds"
    )
    yield from experiment.notes
    if any(part.task == "train" for part in experiment.parts):
        yield "errors of training: those of the gradients of one step from the same state, against torch in float64"
    yield "JIT: TorchScript, torch.compile, XLA, and the compilers of Jittor and JAX; a TensorFlow graph alone is not JIT"
    yield "seconds were measured on one machine; on another machine, the order of the rows may differ, too"
    if done.stopped:
        yield done.stopped


def catalogue(experiments: Iterable[Experiment]) -> Iterator[str]:
    """The list of experiments that ``xverify reproduce`` prints without a name, in rich's markup."""
    for experiment in experiments:
        yield from _describe(experiment)
        yield ""
    yield (
        "columns: JIT, steps, batch, learning rate, optimizer, elapsed time, seconds a step, items a second, time ratio, memory, "
        "error, verdict, weights, and the published figure"
    )
    yield f"durations: those expected on {WHERE}"


def _machine(done: Reproduction, part: Part) -> Iterator[str]:
    """This machine, its versions and its noise."""
    results = [run.result for run in done.of(part) if run.result is not None]
    if not results:
        return
    host, settings = results[0].host, results[0].settings
    versions = {
        row.framework: row.environment[row.framework]
        for result in results
        for row in result.rows
        if row.framework in row.environment
    }
    listed = ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"here: {host.cpu}, {settings.threads} threads, {settings.device}; {listed}"
    yield from (f"too noisy for a verdict on speed: {refusal}" for refusal in _refusals(done, part))
    yield from dict.fromkeys(note for result in results for note in result.notes)


def _refusals(done: Reproduction, part: Part) -> list[str]:
    """Why the machine was too noisy, for each repeat in which it was."""
    results = [run.result for run in done.of(part) if run.result is not None]
    return list(dict.fromkeys(result.noise.refusal for result in results if result.noise.refusal))


def _order(source: Source, rows: Sequence[TableRow]) -> Iterator[str]:
    """The rows from the fastest to the slowest, as measured and as published."""
    both = [row for row in rows if source.name in row.published and row.counted and row.rate is not None]
    if len(both) < 2:
        return
    here = sorted(both, key=lambda row: -(row.rate or 0.0))
    text = here[0].subject
    for faster, slower in itertools.pairwise(here):
        text += f" {'≈' if faster.overlaps(slower) else '>'} {slower.subject}"
    there = sorted(both, key=lambda row: -sum(row.published[source.name].rate))
    published = " > ".join(row.subject for row in there)
    same = "the same order" if text == published else published
    yield f"fastest first (≈: their intervals overlap): {text}; published, {source.name}: {same}"


def _describe(experiment: Experiment) -> Iterator[str]:
    yield f"[bold]{experiment.name}[/]  {escape(experiment.question)}"
    for part in experiment.parts:
        yield f"  {escape(part.title)}: {part.steps:,} steps after {part.warmup:,} to warm up"
        yield f"    rows: {escape(', '.join(entry.subject for entry in part.entries))}"
    for source in experiment.sources:
        yield f"  published, {source.name}: {escape(source.describe())}"
    yield f"  data: {experiment.data or 'random'}"
    whole = experiment.duration(1, experiment.repeats)
    repeats = f", {experiment.repeats} repeats" if experiment.repeats > 1 else ""
    text = f"  takes about {duration(whole)} at scale 1{repeats}"
    scale = experiment.quick_scale()
    if scale < 1:
        text += f"; {duration(experiment.duration(scale))} with --scale {scale:g}"
    if experiment.duration(scale) >= QUICK_SECONDS:
        text += ", nearly all of it for the checks, which --scale does not shorten"
    yield text
