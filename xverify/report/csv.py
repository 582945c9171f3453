"""Results as a table of plain values: CSV for spreadsheets, and a data frame of pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..errors import UsageError, printable
from ..results.records import Error, Layers, Result, Row, Speed

Value = str | float | int | bool | None
FORMULA = ("=", "+", "-", "@")  # a spreadsheet computes a text that begins with one of them
LONGEST = 30_000  # characters; a cell of a spreadsheet holds 32,767


def _error(name: str) -> Callable[[Result, Row], Value]:
    def value(_: Result, row: Row) -> Value:
        found: Value = getattr(row.error, name) if row.error is not None else None
        return found

    return value


def _speed(read: Callable[[Speed], Value]) -> Callable[[Result, Row], Value]:
    """A figure of speed; None where the speed of the row does not count."""
    return lambda _, row: read(row.speed) if row.speed is not None and row.speed.counted else None


def _ratio(read: Callable[[Speed], Value]) -> Callable[[Result, Row], Value]:
    """A figure of the time ratio; None where the speed of the row or of the baseline does not count."""

    def value(result: Result, row: Row) -> Value:
        first = result.baseline(row).speed
        counts = row.speed is not None and row.speed.counted and first is not None and first.counted
        return read(row.speed) if row.speed is not None and counts else None

    return value


def _memory(name: str) -> Callable[[Result, Row], Value]:
    def value(_: Result, row: Row) -> Value:
        found: Value = getattr(row.memory, name)
        return found

    return value


def _layers(read: Callable[[Layers], Value]) -> Callable[[Result, Row], Value]:
    def value(_: Result, row: Row) -> Value:
        found = row.training.layers if row.training is not None else _of(row.error)
        return read(found) if found is not None else None

    return value


def _of(error: Error | None) -> Layers | None:
    return error.layers if error is not None else None


def _first_fault(layers: Layers) -> Value:
    return layers.first.layer if layers.first is not None else None


def _first_check(_: Result, row: Row) -> Value:
    first = row.training.first if row.training is not None else None
    return f"{first.name}, step {first.step}" if first is not None else None


# Name of a column -> its value in a row. New columns may be added at the end, and none is removed.
COLUMNS: dict[str, Callable[[Result, Row], Value]] = {
    "model": lambda result, row: result.model,
    "created": lambda result, row: result.created,
    "xverify": lambda result, row: result.xverify,
    "run_verdict": lambda result, row: result.verdict,
    "task": lambda result, row: row.task,
    "subject": lambda result, row: row.subject,
    "framework": lambda result, row: row.framework,
    "mode": lambda result, row: row.mode,
    "device": lambda result, row: row.device,
    "batch": lambda result, row: row.batch,
    "status": lambda result, row: row.status,
    "verdict": _error("verdict"),
    "reason": lambda result, row: row.reason or (row.error.reason if row.error is not None else None),
    "rel_rms": _error("rel_rms"),
    "mean_abs": _error("mean_abs"),
    "max_abs": _error("max_abs"),
    "noise_ratio": _error("noise_ratio"),
    "float32_ratio": _error("float32_ratio"),
    "outputs_compared": _error("compared"),
    "outputs_expected": _error("expected"),
    "layers_compared": _layers(lambda layers: layers.compared),
    "layers_known": _layers(lambda layers: layers.known),
    "first_faulty_layer": _layers(_first_fault),
    "first_failed_check": _first_check,
    "fps": _speed(lambda speed: speed.fps),
    "fps_low": _speed(lambda speed: speed.fps_ci[0]),
    "fps_high": _speed(lambda speed: speed.fps_ci[1]),
    "seconds_per_step": _speed(lambda speed: speed.seconds_per_step),
    "elapsed_seconds": _speed(lambda speed: speed.elapsed_seconds),
    "calls": _speed(lambda speed: speed.calls),
    "time_ratio": _ratio(lambda speed: speed.ratio),
    "time_ratio_low": _ratio(lambda speed: speed.ratio_ci[0]),
    "time_ratio_high": _ratio(lambda speed: speed.ratio_ci[1]),
    "speed_verdict": lambda result, row: row.speed.verdict if row.speed is not None else None,
    "speed_counted": lambda result, row: row.speed.counted if row.speed is not None else None,
    "speed_not_counted": lambda result, row: row.speed.not_counted if row.speed is not None else None,
    "peak_rss_mib": _memory("peak_rss_mib"),
    "average_rss_mib": _memory("average_rss_mib"),
    "import_rss_mib": _memory("import_rss_mib"),
    "gpu_peak_mib": _memory("gpu_peak_mib"),
    "weights_digest": lambda result, row: row.weights_digest,
    "weights_route": lambda result, row: row.weights_route,
    "detection_limit": _error("detection_limit"),
    "judged": _error("judged"),
}


def report(results: Sequence[Result]) -> str:
    """All rows of these results as CSV. A value that is unknown, or that does not count, is empty."""
    return written(COLUMNS, values(results))


def values(results: Iterable[Result]) -> Iterator[list[Value]]:
    """The values of all columns, for each row of these results."""
    for result in results:
        for row in result.rows:
            yield [read(result, row) for read in COLUMNS.values()]


def written(head: Iterable[str], rows: Iterable[Iterable[Value]]) -> str:
    """A table as CSV. A text that a spreadsheet would compute as a formula begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: Value) -> Value:
    if not isinstance(value, str):
        return value
    text = printable(" ".join(str.__str__(value).split()))[:LONGEST]
    return f"'{text}" if text.startswith(FORMULA) else text


def data_frame(results: Sequence[Result]) -> Any:  # a DataFrame: pandas is optional, and its types are not needed
    """All rows of these results as a data frame of pandas, with the columns of the CSV. Raises UsageError without pandas."""
    try:
        import pandas
    except ModuleNotFoundError:
        raise UsageError("a data frame needs pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame([[_plain(value) for value in row] for row in values(results)], columns=list(COLUMNS))


def _plain(value: Value) -> Value:
    """A verdict as a bare string."""
    return str.__str__(value) if isinstance(value, str) else value
