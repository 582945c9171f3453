"""Results as a table of plain values: CSV for spreadsheets, and a data frame of pandas."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..errors import UsageError, shown
from ..results.records import Result
from .cells import at

Value = str | float | int | bool | None
FORMULA = ("=", "+", "-", "@")  # a spreadsheet computes a text that begins with one of them
LONGEST = 30_000  # characters; a cell of a spreadsheet holds 32,767


# Name of a column -> the path of its value. New columns may be added at the end, and none is removed.
COLUMNS: dict[str, str] = {
    "model": "result.model",
    "created": "result.created",
    "xverify": "result.xverify",
    "run_verdict": "result.verdict",
    "task": "row.task",
    "subject": "row.subject",
    "framework": "row.framework",
    "mode": "row.mode",
    "device": "row.device",
    "batch": "row.batch",
    "status": "row.status",
    "verdict": "row.error.verdict",
    "reason": "row.why",
    "rel_rms": "row.error.rel_rms",
    "mean_abs": "row.error.mean_abs",
    "max_abs": "row.error.max_abs",
    "noise_ratio": "row.error.noise_ratio",
    "float32_ratio": "row.error.float32_ratio",
    "outputs_compared": "row.error.compared",
    "outputs_expected": "row.error.expected",
    "layers_compared": "row.layers.compared",
    "layers_known": "row.layers.known",
    "first_faulty_layer": "row.layers.first.layer",
    "first_failed_check": "row.training.first.label",
    "fps": "row.counted.fps",
    "fps_low": "row.counted.fps_ci.0",
    "fps_high": "row.counted.fps_ci.1",
    "seconds_per_step": "row.counted.seconds_per_step",
    "elapsed_seconds": "row.counted.elapsed_seconds",
    "calls": "row.counted.calls",
    "time_ratio": "compared.ratio",
    "time_ratio_low": "compared.ratio_ci.0",
    "time_ratio_high": "compared.ratio_ci.1",
    "speed_verdict": "row.speed.verdict",
    "speed_counted": "row.speed.counted",
    "speed_not_counted": "row.speed.not_counted",
    "peak_rss_mib": "row.memory.peak_rss_mib",
    "average_rss_mib": "row.memory.average_rss_mib",
    "import_rss_mib": "row.memory.import_rss_mib",
    "gpu_peak_mib": "row.memory.gpu_peak_mib",
    "weights_digest": "row.weights_digest",
    "weights_route": "row.weights_route",
    "detection_limit": "row.error.detection_limit",
    "judged": "row.error.judged",
}


def report(results: Sequence[Result]) -> str:
    """All rows of these results as CSV. A value that is unknown, or that does not count, is empty."""
    return written(COLUMNS, values(results))


def values(results: Iterable[Result]) -> Iterator[list[Value]]:
    """The values of all columns, for each row of these results."""
    for result in results:
        for row in result.rows:
            sources = {"result": result, "row": row, "compared": result.compared(row)}
            yield [at(sources, path) for path in COLUMNS.values()]


def written(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A table as CSV. A text that a spreadsheet would compute as a formula begins with an apostrophe."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return file.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = shown(" ".join(str.__str__(value).split()))[:LONGEST]
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
