"""The geometry of the charts of a page: places in a drawing of WIDTH units, computed from a result. The templates draw them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..results.layers import OUTPUT
from ..results.records import Curve, LayerError, Layers, Result, Row, Sample
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.limits import OWN_EQUAL
from . import numbers
from .axes import TOP, WIDTH, Drawing, Tick, between, dot, linear, logarithmic, power_label, steps, upright
from .curves import by_loss
from .text import one_line

LOW, HIGH = 0.1, 1e6  # the ends of a logarithmic axis of residual / noise floor
MOST_SAMPLES = 3000  # points of one row
LONGEST_NAME = 120  # characters of the name of a layer
MOST_BARS = 400  # layers of one row, each with a bar that is named on hover
MOST_FAULTS = 60  # layers of one row that are drawn and linked by themselves


@dataclass(frozen=True)
class Mark:
    """A row in the chart of speed and error. number: its number in the list of rows. low, high: the ends of its interval.

    says: its name and verdict.
    """

    x: float
    y: float
    low: float
    high: float
    number: int
    verdict: str
    says: str


@dataclass(frozen=True, kw_only=True)
class Paired(Drawing):
    """Speed on one axis, and error in units of the noise floor on the other.

    corner: place of the limit of EQUAL; below it, rows are right.
    left_out: numbers of the rows without a speed that counts, or without a ratio.
    """

    marks: tuple[Mark, ...]
    corner: float
    left_out: tuple[int, ...]


@dataclass(frozen=True)
class Bar:
    """The memory of a row: the lengths of its peak and of its average, and both as text."""

    subject: str
    peak: float
    average: float
    says: str


@dataclass(frozen=True)
class Fault:
    """The bar of a layer. says: its name, R and verdict. index: in the list of layers."""

    x: float
    width: float
    y: float
    verdict: str
    says: str
    index: int


@dataclass(frozen=True, kw_only=True)
class Strip(Drawing):
    """R of every layer of a row in the order of computation. The paths are of the layers that are EQUAL, and of all others.

    faults: the first layers that are not EQUAL, in place of the path. equal: the same of those that are, where they are few.
    width: of a line of the paths. says: how many layers and outputs there are.
    """

    faults: tuple[Fault, ...]
    equal: tuple[Fault, ...]
    width: float


@dataclass(frozen=True)
class Line:
    """The losses of a subject."""

    subject: str
    path: str
    verdict: str


@dataclass(frozen=True, kw_only=True)
class Losses(Drawing):
    """Loss curves with the band of the reference's replicas.

    loss: its name; "" where there is only one. judged: place after which nothing is judged; None for the end.
    """

    loss: str
    lines: tuple[Line, ...]
    judged: float | None


# -- speed and error --------------------------------------------------------------------------------------------------


def paired(result: Result) -> Paired | None:
    """The chart of one task; None when no row has both a speed that counts and an error."""
    bottom = 250.0
    trains = any(row.training is not None for row in result.rows)
    modelled = any(row.error is not None and row.error.noise_ratio is not None for row in result.rows)
    found = [(number, row, _ratio(row, modelled)) for number, row in enumerate(result.rows, 1)]
    shown = [(number, row, ratio) for number, row, ratio in found if ratio is not None and _fps(row) is not None]
    if not shown:
        return None
    ends = [
        end for _, row, _ in shown for end in (_fps(row), *_interval(row)) if end is not None and math.isfinite(end)
    ]
    across = linear(0.0, max(ends) * 1.05, 0.0, WIDTH)
    down = logarithmic(LOW, HIGH, bottom, TOP)
    if trains:
        bounds, error = [limits.EQUAL_R, limits.DRIFT_R], "largest residual / noise floor of a check"
    elif modelled:
        bounds, error = [limits.EQUAL_RHO, limits.DRIFT_RHO], "residual / noise floor"
    else:
        bounds, error = [OWN_EQUAL], "residual / float32's"
    drawn = tuple(number for number, _, _ in shown)
    return Paired(
        says=error,
        bottom=bottom,
        marks=tuple(_mark(number, row, ratio, across, down) for number, row, ratio in shown),
        across=tuple(Tick(across(value), numbers.figure(value)) for value in steps(max(ends) * 1.05)),
        down=tuple(Tick(down(10.0**power), power_label(power)) for power in range(-1, 7)),
        limits=tuple(Tick(down(limit), f"{limit:g}") for limit in bounds),
        corner=down(bounds[0]),
        left_out=tuple(number for number, _, _ in found if number not in drawn),
    )


def _mark(
    number: int, row: Row, ratio: float, across: Callable[[float], float], down: Callable[[float], float]
) -> Mark:
    fps = _fps(row) or 0.0
    low, high = (fps if end is None or not math.isfinite(end) else end for end in _interval(row))
    return Mark(
        across(fps),
        down(ratio),
        across(max(low, 0.0)),
        across(high),
        number,
        row.outcome,
        f"{row.subject}: {row.outcome}",
    )


def _fps(row: Row) -> float | None:
    """Items per second; None when they do not count."""
    fps = row.counted.fps if row.counted is not None else 0.0
    return fps if math.isfinite(fps) and fps > 0 else None


def _interval(row: Row) -> tuple[float | None, float | None]:
    return row.speed.fps_ci if row.speed is not None else (None, None)


def _ratio(row: Row, modelled: bool) -> float | None:
    """The error in units of the noise floor; infinity for NaN."""
    if row.training is not None:
        found = [check.ratio for check in row.training.checks if check.ratio is not None]
        ratio = max((math.inf if math.isnan(each) else each for each in found), default=None)
    elif row.error is None:
        ratio = None
    else:
        ratio = row.error.noise_ratio if modelled else row.error.float32_ratio
    return math.inf if ratio is not None and math.isnan(ratio) else ratio


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(rows: Sequence[Row]) -> tuple[Bar, ...]:
    """A bar for each row whose peak is known."""
    known = [(row, _size(row.memory.peak_rss_mib)) for row in rows]
    most = max((peak for _, peak in known), default=0.0)
    length = linear(0.0, most, 0.0, WIDTH)
    bars: list[Bar] = []
    for row, peak in known:
        if peak:
            average = min(_size(row.memory.average_rss_mib), peak)
            says = f"peak {numbers.whole(peak)} MiB" + (f", average {numbers.whole(average)} MiB" if average else "")
            bars.append(Bar(row.subject, length(peak), length(average), says))
    return tuple(bars)


def _size(value: float | None) -> float:
    return value if value is not None and math.isfinite(value) and value > 0 else 0.0


# -- layers -----------------------------------------------------------------------------------------------------------


def drawn(rows: Sequence[Row]) -> list[Row]:
    """The rows whose layers are worth a chart: those with a fault; where none has one, the row with the largest R."""
    known = [row for row in rows if row.layers is not None and row.layers.layers]
    wrong = [row for row in known if row.layers is not None and row.layers.verdict > Verdict.EQUAL]
    return wrong or sorted(known, key=lambda row: max(map(_worst, row.layers.layers if row.layers else ())))[-1:]


def strip(row: Row) -> Strip | None:
    """The layers of a row; None when none was compared."""
    layers = row.layers
    if layers is None or not layers.layers:
        return None
    bottom = 120.0
    right = all(_worst(layer) < 100.0 for layer in layers.layers)
    down = logarithmic(LOW, 100.0 if right else HIGH, bottom, TOP)
    width = WIDTH / len(layers.layers)
    wide = min(max(0.8 * width, 3.0), 24.0)
    paths: dict[str, list[str]] = {"line-good": [], "line-bad": []}
    bars: tuple[list[Fault], list[Fault]] = ([], [])  # that are EQUAL, and the others
    for index, layer in enumerate(layers.layers):
        x, y, wrong = index * width, down(_worst(layer)), layer.verdict > Verdict.EQUAL
        if len(bars[1]) < MOST_FAULTS if wrong else len(layers.layers) <= MOST_BARS:
            says = f"{one_line(layer.layer, LONGEST_NAME)}: R {numbers.ratio(_worst(layer))}, {layer.verdict}"
            bars[wrong].append(Fault(x + (width - wide) / 2, wide, min(y, bottom - 3), layer.verdict, says, index))
        else:
            paths["line-bad" if wrong else "line-good"].append(
                f"M{x + width / 2:.1f} {bottom:.0f}V{min(y, bottom - 1):.1f}"
            )
    return Strip(
        subject=row.subject,
        bottom=bottom,
        paths={name: "".join(lines) for name, lines in paths.items() if lines},
        faults=tuple(bars[True]),
        equal=tuple(bars[False]),
        limits=tuple(Tick(down(limit), f"{limit:g}") for limit in (limits.EQUAL_R, limits.DRIFT_R)),
        down=tuple(Tick(down(10.0**power), power_label(power)) for power in ((0, 1, 2) if right else (0, 3, 6))),
        width=max(min(0.8 * width, 12.0), 0.5),
        says=_layers_and_outputs(layers),
    )


def _layers_and_outputs(found: Layers) -> str:
    outputs = sum(layer.layer.startswith(OUTPUT) for layer in found.layers)
    count = len(found.layers) - outputs
    says = f"{count} layer{'' if count == 1 else 's'}"
    return f"{says}, then the output" if outputs == 1 else f"{says}, then {outputs} outputs" if outputs else says


def _worst(layer: LayerError) -> float:
    """The larger of R and input R; infinity when one is unknown."""
    ratios = (layer.ratio, layer.input_ratio)
    return max(ratios) if all(map(math.isfinite, ratios)) else math.inf


# -- samples ----------------------------------------------------------------------------------------------------------


def samples(rows: Iterable[Row]) -> list[Drawing]:
    """The timed blocks of each row that has some."""
    return [made for row in rows if (made := _samples(row)) is not None]


def _samples(row: Row) -> Drawing | None:
    samples = [each for each in row.speed.samples if _is_known(each)] if row.speed is not None else []
    if not samples:
        return None
    ordered = sorted(samples, key=lambda each: (each.launch, each.round))
    shown = ordered[:: math.ceil(len(ordered) / MOST_SAMPLES)]
    times = sorted(each.seconds / each.calls for each in shown)
    top = min(times[-1], 3 * times[len(times) // 2]) * 1.05  # one interruption must not flatten all others
    bottom = 96.0
    across = linear(0.0, max(len(shown) - 1, 1), 4.0, WIDTH - 4.0)
    down = linear(0.0, top, bottom, TOP)
    kept, dropped = [], []
    for index, each in enumerate(shown):
        x, y = across(index), down(min(each.seconds / each.calls, top))
        if each.dropped is None:
            kept.append(dot(x, y))
        else:
            dropped.append(upright(x, y))
    says = f"{len(samples)} blocks, {sum(each.dropped is not None for each in samples)} of them in dropped rounds"
    ticks = tuple(Tick(down(value), _time(value, top)) for value in (0.0, top / 2, top))
    paths = {"dots": "".join(kept), "strokes": "".join(dropped)}
    return Drawing(subject=row.subject, says=says, bottom=bottom, down=ticks, paths=paths)


def _time(value: float, top: float) -> str:
    """Seconds, or milliseconds where the axis ends below one second."""
    return f"{value:.3g} s" if top >= 1 else f"{1000 * value:.3g} ms"


def _is_known(sample: Sample) -> bool:
    return sample.calls > 0 and math.isfinite(sample.seconds) and sample.seconds > 0


# -- loss curves ------------------------------------------------------------------------------------------------------


def losses(rows: Iterable[Row]) -> list[Losses]:
    """The loss curves of all rows: a chart of each loss."""
    return [chart for name, curves in by_loss(rows).items() if (chart := _losses(name, list(curves.items())))]


def _losses(name: str, curves: Sequence[tuple[str, Curve]]) -> Losses | None:
    """The curves of one loss; None where no loss of the reference is finite. curves: (subject, curve)."""
    shared = curves[0][1]
    right = [loss for part in (shared.reference, shared.low, shared.high) for loss in part if math.isfinite(loss)]
    if not right:
        return None
    spread = (max(right) - min(right)) or abs(right[0]) or 1.0
    low, high = min(right) - 0.2 * spread, max(right) + 0.2 * spread
    last = max(1, *(len(curve.losses) - 1 for _, curve in curves), len(shared.reference) - 1)
    bottom = 220.0
    across, down = linear(0.0, last, 0.0, WIDTH), linear(low, high, bottom, TOP)

    def path(values: Sequence[float], start: str = "M") -> str:
        points = [(across(step), down(min(max(loss, low), high))) for step, loss in _finite(values)]
        return start + "L".join(f"{x:.1f} {y:.1f}" for x, y in points) if points else ""

    back = [(step, loss) for step, loss in _finite(shared.low)][::-1]
    edge = "".join(f"L{across(step):.1f} {down(loss):.1f}" for step, loss in back)
    upper = path(shared.high)
    return Losses(
        loss=name,
        bottom=bottom,
        paths={"band": f"{upper}{edge}Z" if upper and edge else "", "reference": path(shared.reference)},
        lines=tuple(Line(subject, path(curve.losses), curve.outcome) for subject, curve in curves),
        across=tuple(Tick(across(value), f"{value:g}") for value in steps(last) if value == int(value)),
        down=tuple(Tick(down(value), numbers.significant(value)) for value in between(low, high)),
        judged=across(shared.judged - 0.5) if 0 < shared.judged < len(shared.reference) else None,
    )


def _finite(values: Sequence[float]) -> list[tuple[int, float]]:
    return [(step, loss) for step, loss in enumerate(values) if math.isfinite(loss)]
