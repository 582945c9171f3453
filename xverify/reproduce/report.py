"""A reproduced experiment: its table in the terminal and in Markdown, its result file, and the list of all experiments."""

from __future__ import annotations

import itertools
import json
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .. import __version__
from ..report.rows import refused
from ..report.style import STYLES as COLOURS
from ..report.training import training_tables
from ..results.records import Result, Row, Speed
from ..workload.spec import find_model
from .records import GLANCE, WHERE, Entry, Experiment, Outcome, Part, Reproduction, readable

SCHEMA_VERSION = 1
WORST = ("INVALID", "DIFFERENT", "UNTESTED", "DRIFT", "EQUAL", "IDENTICAL")
Range = tuple[float, float]


@dataclass(frozen=True)
class Published:
    """A published figure in the units of the table: (lowest, highest)."""

    seconds_per_step: Range
    rate: Range
    gigabytes: float | None
    named: str


@dataclass(frozen=True)
class Line:
    """A row of the table, over the repeats of its part.

    elapsed: seconds of all timed steps, one a repeat. counted: whether its speed counts. outcome: the verdict on what it computes,
    or why there is none. range: of items a second, from the lowest to the highest end of the repeats' intervals. weights:
    "identical", when every repeat read back the reference's. published: by name of the source.
    """

    subject: str
    framework: str
    jit: str
    batch: int
    warmup: int
    steps: int
    optimizer: str | None
    lr: float | None
    outcome: str
    reason: str | None = None
    elapsed: tuple[float, ...] = ()
    ratio: float | None = None
    range: tuple[float, float] | None = None
    counted: bool = True
    peak_mib: float | None = None
    average_mib: float | None = None
    relative_error: float | None = None
    mean_abs: float | None = None
    weights: str = "-"
    published: dict[str, Published] = field(default_factory=dict)

    # One figure is measured, the rest is arithmetic: elapsed = steps × seconds a step in every row.

    @property
    def elapsed_seconds(self) -> float | None:
        return statistics.fmean(self.elapsed) if self.elapsed else None

    @property
    def seconds_per_step(self) -> float | None:
        return None if self.elapsed_seconds is None else self.elapsed_seconds / self.steps

    @property
    def rate(self) -> float | None:
        return None if self.seconds_per_step is None else self.batch / self.seconds_per_step

    def to_dict(self) -> dict[str, Any]:
        named = ("elapsed_seconds", "seconds_per_step", "rate")
        return {**asdict(self), **{name: getattr(self, name) for name in named}}


def lines(experiment: Experiment, part: Part, scale: float, outcomes: Sequence[Outcome]) -> list[Line]:
    """A part's table."""
    results = [outcome.result for outcome in outcomes if outcome.result is not None]
    failure = next((outcome.failure for outcome in outcomes if outcome.failure), None)
    return [_line(experiment, part, scale, entry, results, failure) for entry in part.entries]


def _line(
    experiment: Experiment, part: Part, scale: float, entry: Entry, results: list[Result], failure: str | None
) -> Line:
    warmup, steps = part.scaled(scale)
    found = [(result, row) for result in results for row in result.rows if row.subject == entry.subject]
    rows = [row for _, row in found]
    # Fewer steps were timed when the run was ended early: all that is said is of the longest.
    speeds = [row.speed for row in rows if row.speed is not None]
    steps = max((speed.calls for speed in speeds), default=steps)
    whole = [speed for speed in speeds if speed.calls == steps]
    errors = [row.error for row in rows if row.error is not None]
    failed = next((row for row in rows if row.status != "ok"), None)
    outcome = failed.status if failed else "failed"
    if errors and not failed:
        outcome = min((error.verdict for error in errors), key=WORST.index)
    ratios = [speed.ratio for speed in whole if speed.ratio is not None]
    sources = {source.name: source for source in experiment.sources}
    return Line(
        subject=entry.subject,
        framework=entry.subject.partition(":")[0],
        jit=entry.jit,
        batch=part.batch,
        warmup=warmup,
        steps=steps,
        optimizer=part.optimizer,
        lr=part.lr,
        outcome=outcome if rows else "failed",
        reason=next(filter(None, map(_reason, rows)), None) or (failure if not rows else None),
        elapsed=tuple(speed.elapsed_seconds for speed in whole),
        ratio=statistics.fmean(ratios) if ratios else None,
        range=_range(whole),
        counted=not any(refused(row) for row in rows),
        peak_mib=_most(row.memory.peak_rss_mib for row in rows),
        average_mib=_most(row.memory.average_rss_mib for row in rows),
        relative_error=_most(error.rel_rms for error in errors),
        mean_abs=_most(error.mean_abs for error in errors),
        weights=_weights(found),
        published={
            name: Published(
                part.per_step(figure, sources[name]),
                part.per_second(figure, sources[name]),
                figure.gigabytes,
                figure.named,
            )
            for name, figure in entry.figures.items()
        },
    )


def _reason(row: Row) -> str | None:
    if row.reason or (row.error is not None and row.error.reason):
        return row.reason or (row.error.reason if row.error else None)
    return row.speed.reason if refused(row) and row.speed else None


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _weights(found: Sequence[tuple[Result, Row]]) -> str:
    if not found or any(row.weights_digest is None for _, row in found):
        return "-"
    return (
        "identical" if all(row.weights_digest == result.weights.get("digest") for result, row in found) else "DIFFERENT"
    )


# -- columns ----------------------------------------------------------------------------------------------------------


def columns(experiment: Experiment, part: Part, found: Sequence[Line]) -> dict[str, Callable[[Line], str]]:
    """Title -> the text of a cell; those of which the part has anything."""
    trained = part.task == "train"
    shown: dict[str, Callable[[Line], str]] = {
        "subject": lambda line: line.subject,
        "JIT": lambda line: line.jit,
        "steps": lambda line: f"{line.steps:,}",
        "batch": lambda line: str(line.batch),
    }
    if trained:
        shown["lr"] = lambda line: f"{line.lr:g}"
        shown["optimizer"] = lambda line: str(line.optimizer)
    shown |= {
        "elapsed s": _elapsed,
        "s/step": lambda line: _seconds(line.seconds_per_step) if line.counted else "-",
        rate(part): lambda line: _figure(line.rate),
        "time ratio": lambda line: f"{line.ratio:.3f}" if line.ratio is not None and line.counted else "-",
        "peak MiB": lambda line: _whole(line.peak_mib),
        "average MiB": lambda line: _whole(line.average_mib),
        "mean |Δ|": lambda line: _small(line.mean_abs),
        "relative error": lambda line: _small(line.relative_error),
        "verdict": lambda line: line.outcome,
        "weights": lambda line: line.weights,
    }
    unit = "s/step" if experiment.by == "step" else rate(part)
    for source in experiment.sources:
        if any(source.name in line.published for line in found):
            shown[f"published {unit}, {source.name}"] = _published(source.name, experiment.by)
        if any(each.gigabytes for line in found for name, each in line.published.items() if name == source.name):
            shown[f"published GB, {source.name}"] = _gigabytes(source.name)
    return shown


# What goes first where there is no room; the last stay.
SPARED = (
    "mean |Δ|", "average MiB", "time ratio", "batch", "lr", "optimizer", "peak MiB", "elapsed s", "weights", "steps",
)  # fmt: skip


def rate(part: Part) -> str:
    item = find_model(part.model).spec.item
    return "FPS" if item == "image" else f"{item}s/s"


def _elapsed(line: Line) -> str:
    if line.elapsed_seconds is None or not line.counted:
        return "-"
    spread = f" ({_figure(min(line.elapsed))}–{_figure(max(line.elapsed))})" if len(line.elapsed) > 1 else ""
    return _figure(line.elapsed_seconds) + spread


def _published(source: str, by: str) -> Callable[[Line], str]:
    def cell(line: Line) -> str:
        found = line.published.get(source)
        if found is None:
            return "-"
        low, high = found.seconds_per_step if by == "step" else found.rate
        write = _seconds if by == "step" else _exact
        return write(low) if low == high else f"{write(low)}–{write(high)}"

    return cell


def _gigabytes(source: str) -> Callable[[Line], str]:
    return lambda line: _figure(line.published[source].gigabytes if source in line.published else None)


def _figure(value: float | None) -> str:
    """Four significant digits, with separators for thousands."""
    if value is None:
        return "-"
    return f"{float(f'{value:.4g}'):,.0f}" if value >= 1000 else f"{value:.4g}"


def _exact(value: float) -> str:
    """As it was published, which is to five digits at most."""
    return f"{float(f'{value:.5g}'):,}".removesuffix(".0")


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{float(f'{value:.3g}'):.6f}".rstrip("0").rstrip(".")


def _whole(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _small(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


# -- what stands around a table ---------------------------------------------------------------------------------------


def title(part: Part, scale: float) -> str:
    warmup, steps = part.scaled(scale)
    text = f"{part.title}: {steps:,} steps timed after {warmup:,} to warm up"
    if scale < 1:
        text += f"; {steps:,} of {part.steps:,} steps: elapsed is measured, not extrapolated"
    return text


def foundation(done: Reproduction, part: Part, found: Sequence[Line], told: Iterable[str] = ()) -> Iterator[str]:
    """What a part's table rests on, a line each. told: subjects whose reasons stand elsewhere."""
    experiment, results = done.experiment, [each.result for each in done.of(part) if each.result is not None]
    yield from (f"{line.subject}: {line.reason}" for line in found if line.reason and line.subject not in told)
    for line in found:
        named = dict.fromkeys(each.named for each in line.published.values() if each.named)
        yield from (f"{line.subject}: published as {name}" for name in named)
    for source in experiment.sources:
        if any(source.name in line.published for line in found):
            yield f"published, {source.name}: {source.says()}"
    if results:
        host, settings = results[0].host, results[0].settings
        versions = {
            row.framework: row.environment[row.framework]
            for result in results
            for row in result.rows
            if row.framework in row.environment
        }
        yield f"here: {host['cpu']}, {settings['threads']} threads, {settings['device']}; " + ", ".join(
            f"{name} {version}" for name, version in versions.items()
        )
        yield from dict.fromkeys(
            f"too noisy for a verdict on speed: {result.noise['refusal']}"
            for result in results
            if result.noise.get("refusal")
        )
        yield from dict.fromkeys(note for result in results for note in result.notes)
    yield from _orders(experiment, found)


def _orders(experiment: Experiment, found: Sequence[Line]) -> Iterator[str]:
    """Which row is the fastest, here and as published: the question that another machine's seconds do not answer."""
    for source in experiment.sources:
        both = [line for line in found if source.name in line.published and line.counted and line.rate is not None]
        if len(both) < 2:
            continue
        here = sorted(both, key=lambda line: -(line.rate or 0.0))
        text = here[0].subject
        for faster, slower in itertools.pairwise(here):
            text += f" {'≈' if _overlap(faster, slower) else '>'} {slower.subject}"
        there = sorted(both, key=lambda line: -sum(line.published[source.name].rate))
        published = " > ".join(line.subject for line in there)
        same = "the same order" if text == published else published
        yield f"fastest first (≈: their intervals overlap): {text}; published, {source.name}: {same}"


def _range(speeds: Sequence[Speed]) -> tuple[float, float] | None:
    """From the lowest to the highest end of these speeds' intervals, items a second; None without an interval."""
    ends = [end for speed in speeds for end in speed.fps_ci]
    known = [end for end in ends if end is not None]
    return (min(known), max(known)) if known and len(known) == len(ends) else None


def _overlap(one: Line, other: Line) -> bool:
    """Whether nothing tells these two rows apart."""
    if one.range is None or other.range is None:
        return False
    return max(one.range[0], other.range[0]) <= min(one.range[1], other.range[1])


def about(done: Reproduction) -> Iterator[str]:
    """What the whole report rests on, a line each."""
    experiment = done.experiment
    yield f"data: {done.data}"
    if done.repeats > 1:
        yield f"{done.repeats} repeats, each of fresh processes: means, with the lowest and the highest elapsed time"
    yield from experiment.notes
    if any(part.task == "train" for part in experiment.parts):
        yield "errors of training: of the gradients of one step from the same state, beside torch in float64"
    yield "JIT: TorchScript, torch.compile, XLA, Jittor's and JAX' own; a graph alone is none"
    yield "seconds belong to their machine, and so may the order of the rows"
    if done.stopped:
        yield done.stopped


# -- variants ------------------------------------------------------------------------------------------------------------


def show(done: Reproduction, part: Part, console: Console) -> None:
    """Print a part's table, and what it rests on."""
    found = lines(done.experiment, part, done.scale, done.of(part))
    shown = columns(done.experiment, part, found)
    for spared in ("", *SPARED, *[name for name in shown if name.startswith("published GB")]):
        shown.pop(spared, None)
        table = Table(title=title(part, done.scale), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name in shown:
            left = name in ("subject", "verdict", "weights")
            table.add_column(name.replace(" ", "\n", 1), justify="left" if left else "right", no_wrap=True)
        for line in found:
            table.add_row(*(_coloured(name, cell(line), line, part) for name, cell in shown.items()))
        if console.measure(table, options=console.options.update(width=1000)).maximum <= console.width:
            break
    console.print(table)
    first = next((outcome.result for outcome in done.of(part) if outcome.result is not None), None)
    trained = [row for row in first.rows if row.training is not None] if first else []
    for renderable in training_tables(trained):
        console.print(renderable)
    told = [row.subject for row in trained if row.status == "ok" and row.error is not None and row.error.reason]
    for text in foundation(done, part, found, told):
        console.print(f"[dim]{escape(text)}[/]", soft_wrap=True)
    console.print()


def _coloured(name: str, text: str, line: Line, part: Part) -> str:
    if name == rate(part) and not line.counted:
        return f"[strike]{escape(text)}[/] not counted"
    if name == "verdict":
        return f"[{COLOURS.get(text, 'red')}]{escape(text)}[/]"
    return escape(text)


def close(done: Reproduction, console: Console, quiet: bool, file: str | None) -> None:
    """Print what the whole rests on, and the verdict as the last line."""
    if not quiet:
        for text in about(done):
            console.print(f"[dim]{escape(text)}[/]", soft_wrap=True)
    rows = [line for part in done.experiment.parts for line in _lines_of(done, part)]
    equal = sum(line.outcome in ("IDENTICAL", "EQUAL") for line in rows)
    parts = [f"{equal} of {len(rows)} rows EQUAL", file or ""]
    verdict = f"[{COLOURS[done.verdict]}]{done.verdict}[/]"
    console.print(f"{verdict} {done.experiment.name}: {escape('; '.join(filter(None, parts)))}", soft_wrap=True)


def _lines_of(done: Reproduction, part: Part) -> list[Line]:
    return lines(done.experiment, part, done.scale, done.of(part))


def markdown(done: Reproduction) -> str:
    """The whole report as Markdown; parts that have not been run are left out."""
    text = [f"# {done.experiment.name}", "", done.experiment.question, ""]
    for part in done.experiment.parts:
        if not done.of(part):
            continue
        found = _lines_of(done, part)
        shown = columns(done.experiment, part, found)
        text += [f"## {title(part, done.scale)}", "", _markdown_row(shown), "|---" + "|---:" * (len(shown) - 1) + "|"]
        for line in found:
            cells = {name: cell(line) for name, cell in shown.items()}
            if not line.counted:
                cells[rate(part)] = f"~~{cells[rate(part)]}~~ not counted"
            text.append(_markdown_row(cells.values()))
        text += ["", *(f"* {note}" for note in foundation(done, part, found)), ""]
    return "\n".join([*text, *(f"* {note}" for note in about(done)), ""])


def _markdown_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def to_dict(done: Reproduction) -> dict[str, Any]:
    """The result file: the table, and every run that it was made from."""
    return {
        "schema_version": SCHEMA_VERSION,
        "xverify": __version__,
        "created": done.created,
        "experiment": done.experiment.name,
        "question": done.experiment.question,
        "scale": done.scale,
        "repeats": done.repeats,
        "data": done.data,
        "verdict": done.verdict,
        "complete": done.complete,
        "stopped": done.stopped,
        "notes": list(done.experiment.notes),
        "sources": [asdict(source) for source in done.experiment.sources],
        "tables": [
            {"part": asdict(part), "title": title(part, done.scale), "rows": [line.to_dict() for line in found]}
            for part in done.experiment.parts
            if (found := _lines_of(done, part) if done.of(part) else [])
        ],
        "runs": [
            {
                "part": done.experiment.place(outcome.part),
                "repeat": outcome.repeat,
                "failure": outcome.failure,
                "result": outcome.result.to_dict() if outcome.result is not None else None,
            }
            for outcome in done.outcomes
        ],
    }


def write(done: Reproduction, path: str | Path) -> None:
    """Write the result file, whole or not at all."""
    _replace(Path(path), json.dumps(to_dict(done), indent=1) + "\n")


def write_markdown(done: Reproduction, path: str | Path) -> None:
    _replace(Path(path), markdown(done))


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def catalogue(experiments: Iterable[Experiment]) -> Iterator[str]:
    """What ``xverify reproduce`` alone prints, in rich's markup."""
    for each in experiments:
        yield f"[bold]{each.name}[/]  {escape(each.question)}"
        for part in each.parts:
            steps = f"{part.steps:,} steps after {part.warmup:,} to warm up"
            yield f"  {escape(part.title)}: {steps}"
            yield f"    rows: {escape(', '.join(entry.subject for entry in part.entries))}"
        for source in each.sources:
            yield f"  published, {source.name}: {escape(source.says())}"
        yield f"  data: {each.data or 'random'}"
        whole = each.duration(1, each.repeats)
        repeats = f", {each.repeats} repeats" if each.repeats > 1 else ""
        text = f"  takes about {readable(whole)} at scale 1{repeats}"
        scale = each.glance()
        if scale < 1:
            text += f"; {readable(each.duration(scale))} with --scale {scale:g}"
        if each.duration(scale) >= GLANCE:
            text += ", nearly all of it to judge, which no scale shortens"
        yield text
        yield ""
    yield (
        "columns: JIT, steps, batch, learning rate, optimizer, elapsed time, seconds a step, items a second, time ratio, memory, "
        "error, verdict, weights, and the published figure"
    )
    yield f"durations: as expected on {WHERE}"
