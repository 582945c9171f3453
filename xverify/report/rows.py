"""The tables of a result: error beside speed, and the details of starting and of memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..errors import shown
from ..results.layers import OUTPUT
from ..results.records import Result, Row, Speed
from ..results.verdicts import Verdict
from ..verdict import limits
from . import numbers
from .cells import written
from .style import STYLES, coloured
from .tables import Column, FirstThatFits, Titled, narrower, table
from .text import escape

RATE = "{rate} (95% interval)"
RATIO = "time ratio"
MARK = "*"  # of a speed that does not count, in a narrow table
DETECTION = "detection limit"
NOISE, FLOAT32 = "residual / noise floor", "residual / float32's"
# Short title of a column -> what it means.
LEGEND = {
    "× floor": f"error / error that rounding explains; up to {limits.EQUAL_RHO:g} is EQUAL",
    "× float32's": f"error / the reference's own error in float32; up to {limits.OWN_EQUAL:g} is EQUAL",
}


def summary(result: Result) -> FirstThatFits:
    """The table of all rows, with as many columns as fit into the width of the console."""
    return fitting(list(columns(result)), DISPENSABLE, result, _title(result))


def fitting(columns: Sequence[Column[Row]], dispensable: Sequence[str], result: Result, title: str) -> FirstThatFits:
    """A table of all rows, with as many of these columns as fit into the width of the console.

    dispensable: titles of the columns to leave out when it is too narrow, in this order.
    """
    return FirstThatFits(_with_notes(each, result.rows, title) for each in narrower(columns, dispensable))


def _with_notes(columns: Sequence[Column[Row]], rows: Sequence[Row], title: str) -> Titled:
    """A table that says below what the mark of a brief cell and the name of a column mean."""
    made = table(columns, rows, title)
    if any(column.cell is _brief_rate for column in columns):
        made.notes += _footnote(rows)
    titles = {" ".join(column.title.split()) for column in columns}
    made.notes += [f"{name}: {says}" for name, says in LEGEND.items() if name in titles]
    return made


def _footnote(rows: Sequence[Row]) -> Iterator[str]:
    """Why the speeds with a mark do not count."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        why = why_not_counted(row)
        if why is not None:
            reasons.setdefault(why or "does not compute the same", []).append(row.subject)
    said = [why if len(reasons) == 1 else f"{', '.join(subjects)}: {why}" for why, subjects in reasons.items()]
    if said:
        yield f"{MARK} not counted: {'; '.join(said)}"


def details(result: Result) -> Iterator[FirstThatFits]:
    """The table of the times before the timed calls, and that of memory. Columns without any figure are left out."""
    titles = (
        "before and in the timed calls",
        "memory in MiB: import is that after importing the framework; + is added to it",
    )
    for title, columns in zip(titles, (TIMES, MEMORY)):
        known = [each for each in columns if any(each.cell(row) != numbers.ABSENT for row in result.rows)]
        if len(known) > 1:
            yield fitting(known, DISPENSABLE_TIMES, result, title)


def speed_columns(result: Result) -> list[Column[Row]]:
    """The columns about speed and memory, for a table that has others for the outputs."""
    titles = (RATE.format(rate=rate_unit(result.item)), "elapsed s", "s/batch", RATIO, "speed", "peak MiB")
    return [column for column in columns(result) if column.title in titles]


def rate_unit(item: str) -> str:
    """The unit of speed. item: the name of one element of a batch, e.g. image."""
    return "FPS" if item == "image" else f"{shown(item)}s/s"


def why_not_counted(row: Row) -> str | None:
    """Why the speed of this row does not count, in a few words. "" when the row's verdict says so; None when it counts."""
    if row.speed is None or row.speed.counted:
        return None
    return "" if row.error is not None and row.error.verdict.fails else row.speed.not_counted or ""


def not_counted(figure: str, why: str) -> str:
    """A speed in rich's markup, struck out, because it does not count. why: in a few words; "" when another cell says it."""
    return f"[strike]{figure}[/] not counted" + (f": {escape(why)}" if why else "")


def _title(result: Result) -> str:
    batch = f", batch {result.rows[0].batch}" if result.rows else ""
    title = f"{result.model}, {', '.join(result.tasks)}{batch}"
    warmup, rerun = result.settings.warmup, result.settings.rerun
    if rerun is not None:
        title += f": {rerun} batches timed" + (f" after {warmup} to warm up" if warmup is not None else "")
    return title


def columns(result: Result) -> Iterator[Column[Row]]:
    """The columns that this result has figures for."""
    literal = result.settings.rerun is not None
    modelled = any(row.error and row.error.noise_ratio is not None for row in result.rows)
    trained = all(row.task == "train" for row in result.rows)
    timed = not result.settings.no_timing
    wanted = {
        RATE: timed,
        RATIO: timed,
        "peak MiB": timed,
        "task": len(result.tasks) > 1,
        "elapsed s": literal,  # otherwise the number of timed calls differs between rows
        "s/batch": literal,
        "speed": any(row.speed and len(row.speed.launches) > 1 for row in result.rows),
        DETECTION: any(row.error and row.error.detection_limit is not None for row in result.rows),
        FLOAT32: not modelled and not trained,
        NOISE: modelled and not trained,
        "layers": modelled and not trained,
    }
    for column in COLUMNS:
        if not wanted.get(column.title, True):
            continue
        if column.title == RATE:
            yield replace(column, title=RATE.format(rate=rate_unit(result.item)))
        elif column.title == RATIO:
            yield replace(column, cell=_time_ratio(result), brief=_time_ratio(result, brief=True))
        else:
            yield column


# -- cells ------------------------------------------------------------------------------------------------------------


def _rate(row: Row) -> str:
    return numbers.ABSENT if row.speed is None else rate(row.speed, why_not_counted(row))


def rate(speed: Speed, why: str | None) -> str:
    """The cell of a speed, in items per second with the interval. why: it does not count; None when it does."""
    low, high = speed.fps_ci
    text = numbers.figure(speed.fps)
    if why is not None:
        return not_counted(text, why)
    if low is None or high is None:
        return text
    return numbers.interval(text, numbers.figure(low), numbers.figure(high))


def _brief_rate(row: Row) -> str:
    """The speed without its interval. One that does not count has a mark."""
    if row.speed is None:
        return numbers.ABSENT
    text = numbers.figure(row.speed.fps)
    return text if why_not_counted(row) is None else f"[strike]{text}[/]{MARK}"


def _time_ratio(result: Result, brief: bool = False) -> Callable[[Row], str]:
    """A cell with the time ratio; a dash when the speed of the row, or that of the first row of its task, does not count.

    brief: without its interval.
    """

    def cell(row: Row) -> str:
        speed = result.compared(row)
        if speed is None or speed.ratio is None:
            return numbers.ABSENT
        if brief or len(speed.launches) < 2 or row is result.baseline(row):
            return numbers.time_ratio(speed.ratio)
        return numbers.time_ratio(speed.ratio, *speed.ratio_ci)

    return cell


def _speed_verdict(row: Row) -> str:
    verdict = row.speed.verdict if row.speed else None
    return f"[{STYLES.get(verdict, 'default')}]{verdict}[/]" if verdict else numbers.ABSENT


def _layers(row: Row) -> str:
    """The number of layers that differ, or else the number that were judged, and the number of all layers."""
    layers = row.error.layers if row.error else None
    if layers is None or not layers.compared:
        return numbers.ABSENT
    differing = sum(layer.verdict == Verdict.DIFFERENT for layer in layers.layers)
    vague = sum(not layer.layer.startswith(OUTPUT) for layer in layers.untested)
    return f"[red]{differing} of {layers.known} differ[/]" if differing else f"{layers.compared - vague}/{layers.known}"


def verdict(row: Row) -> str:
    """The cell of the verdict, with the precision at which it holds when that is lower than float32."""
    return coloured(row.outcome) + escape(row.at_precision)


def _mean_over_process_runs(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = [getattr(run, name) for run in row.speed.launches] if row.speed else []
        known = [value for value in found if value is not None]
        return numbers.whole(sum(known) / len(known) if known else None)

    return cell


def _beyond_import(name: str) -> Callable[[Row], str]:
    """Memory minus the memory after importing the framework."""

    def cell(row: Row) -> str:
        found, base = getattr(row.memory, name), row.memory.import_rss_mib
        return numbers.whole(None if found is None or base is None else found - base)

    return cell


def _known_ratio(value: float | None) -> str:
    return numbers.ABSENT if value is None else numbers.ratio(value)


COLUMNS: tuple[Column[Row], ...] = (
    Column("subject", lambda row: escape(row.subject), left=True),
    Column("task", lambda row: escape(row.task), left=True),
    Column(RATE, _rate, brief=_brief_rate),
    Column("elapsed s", written("counted.elapsed_seconds", numbers.figure)),
    Column("s/batch", written("counted.seconds_per_step", numbers.figure)),
    Column(RATIO, lambda row: numbers.ABSENT),  # made for each result, because it needs the first row
    Column("speed", _speed_verdict),
    Column("relative error", written("error.rel_rms", numbers.error)),
    Column("mean |Δ|", written("error.mean_abs", numbers.error)),
    Column("max |Δ|", written("error.max_abs", numbers.error)),
    Column(FLOAT32, written("error.float32_ratio", _known_ratio), short="× float32's"),
    Column(NOISE, written("error.noise_ratio", _known_ratio), short="× floor"),
    Column("layers", _layers),
    Column("verdict", verdict, left=True),
    Column(DETECTION, written("error.detection_limit", numbers.limit), short="would show"),
    Column("peak MiB", written("memory.peak_rss_mib", numbers.whole)),
)
# The order in which columns are left out of a table that is too wide: those about errors last.
DISPENSABLE = (
    "peak MiB",
    "elapsed s",
    "s/batch",
    "layers",
    RATIO,
    DETECTION,
    "mean |Δ|",
    "max |Δ|",
    FLOAT32,
    "speed",
    "relative error",
)
SUBJECT = Column[Row]("subject", lambda row: escape(row.subject), left=True)
TIMES: tuple[Column[Row], ...] = (
    SUBJECT,
    Column("process runs", lambda row: str(len(row.speed.launches)) if row.speed else numbers.ABSENT),
    Column("import s", written("speed.import_seconds", numbers.significant)),
    Column("build s", written("speed.build_seconds", numbers.significant)),
    Column("first step s", written("speed.first_step_seconds", numbers.significant)),
    Column("second step s", written("speed.second_step_seconds", numbers.significant)),
    Column("compile s", written("speed.compile_seconds", numbers.significant)),
    Column("warm-up", _mean_over_process_runs("warmup_calls")),
    Column("p99 s", written("counted.p99_seconds", numbers.significant)),
    Column("faults/call", _mean_over_process_runs("faults_per_call")),
)
DISPENSABLE_TIMES = ("compile s", "p99 s", "process runs")
MEMORY: tuple[Column[Row], ...] = (
    SUBJECT,
    Column("import", written("memory.import_rss_mib", numbers.whole)),
    Column("+ peak", _beyond_import("peak_rss_mib")),
    Column("+ average", _beyond_import("average_rss_mib")),
    Column("GPU peak", written("memory.gpu_peak_mib", numbers.whole)),
    Column("GPU process", written("memory.gpu_process_mib", numbers.whole)),
)
