"""The geometry of the charts of a series: its verdicts, time ratios, residuals and memory, one above the other, by result."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from ..report import numbers
from ..report.axes import TOP, WIDTH, Drawing, Tick, dot, linear, logarithmic, power_label, upright
from ..report.html import tone
from .changes import LIMITS, RATIO, VERDICT
from .records import BETTER, WORSE, Point, Series, time_of
from .words import moment

MOST_POINTS = 200  # the newest of a series
HEIGHT, GAP = 96.0, 30.0  # of a panel, and between two panels: its title is there
LANES = 40.0  # the height of the panel of verdicts
LOW, HIGH, RIGHT_HIGH = 0.1, 1e6, 100.0  # the ends of the axis of residuals; the last where every one is below it
DATES = 4  # labels below a chart
PLACES = {"good": 2, "warn": 1, "bad": 0}  # the rows of the marks, counted from the bottom


@dataclass(frozen=True)
class Line:
    """The place of a change, and its effect."""

    place: float
    effect: str


@dataclass(frozen=True)
class Chart:
    """The panels of one series.

    down, across: labels of all panels, and of some results. lines: the changes for the worse and for the better.
    left_out: number of results that are older than the first that is drawn.
    """

    verdicts: Drawing
    panels: tuple[Drawing, ...]
    across: tuple[Tick, ...]
    lines: tuple[Line, ...]
    bottom: float
    down: tuple[Tick, ...]
    drawn: int
    left_out: int


Places = Callable[[float], float]


def chart(series: Series, points: Sequence[Point]) -> Chart:
    """The chart of a series. points: in the order of time."""
    drawn = points[-MOST_POINTS:]
    across = linear(0.0, max(len(drawn) - 1, 1), 8.0, WIDTH - 8.0)
    verdicts = _verdicts(drawn, across)
    panels: list[Drawing] = []
    bottom = verdicts.bottom
    peaks = _memory("peak memory, MiB", "peak_rss_mib"), _memory("peak memory of the device, MiB", "gpu_peak_mib")
    for make in (_ratios, _residuals, *peaks):
        panel = make(drawn, across, bottom + GAP)
        if panel is not None:
            panels.append(panel)
            bottom = panel.bottom
    labels = tuple(tick for panel in panels for tick in panel.down)
    lines = _lines(series, drawn, across)
    return Chart(
        verdicts,
        tuple(panels),
        _dates(drawn, across),
        tuple(lines),
        bottom,
        labels,
        len(drawn),
        len(points) - len(drawn),
    )


def _verdicts(points: Sequence[Point], across: Places) -> Drawing:
    paths = {"good": "", "warn": "", "bad": ""}
    top = TOP + 8
    for index, point in enumerate(points):
        judged = "-" if point.outcome == "ok" else point.outcome
        which = tone(judged)
        x, y = across(index), top + 12.0 * (2 - PLACES[which])
        paths[which] += upright(x, y) if which == "warn" else dot(x, y)
    classes = {"good": "marks round-good", "warn": "marks stroke-warn", "bad": "marks square-bad"}
    return Drawing(says=VERDICT, bottom=top + LANES, paths={classes[each]: path for each, path in paths.items()})


def _ratios(points: Sequence[Point], across: Places, top: float) -> Drawing | None:
    known = [(index, each, each.ratio) for index, each in enumerate(points) if each.ratio is not None]
    if not known:
        return None
    ends = [
        end for _, each, ratio in known for end in (ratio, *((each.low, each.high) if each.compared else ())) if end
    ]
    low, high = (
        min(ends),
        min(max(ends), 3 * sorted(ends)[len(ends) // 2]),
    )  # one wide interval must not flatten all others
    room = 0.08 * (high - low) or 0.05 * high
    down = _clipped(linear(low - room, high + room, top + HEIGHT, top), top, top + HEIGHT)
    baselines = list(dict.fromkeys(each.baseline for _, each, _ in known))
    beside = (
        baselines[0] if len(baselines) == 1 else f"{len(baselines)} baselines, of which each is compared with itself"
    )
    whiskers = "".join(
        f"M{across(index):.1f} {down(each.low):.1f}V{down(each.high):.1f}"
        for index, each, _ in known
        if each.compared and each.low is not None and each.high is not None
    )
    dots = _dots(((index, ratio) for index, each, ratio in known if each.compared), across, down)
    crosses = "".join(upright(across(index), down(ratio)) for index, each, ratio in known if not each.compared)
    labels = tuple(Tick(down(value), numbers.significant(value)) for value in (low, (low + high) / 2, high))
    paths = {"line-ink": whiskers, "dots": dots, "strokes": crosses}
    return Drawing(says=f"{RATIO}: time / time of {beside}", bottom=top + HEIGHT, down=labels, paths=paths)


def _residuals(points: Sequence[Point], across: Places, top: float) -> Drawing | None:
    known = [(index, each.rho) for index, each in enumerate(points) if each.rho is not None]
    if not known:
        return None
    high = RIGHT_HIGH if max(rho for _, rho in known) < RIGHT_HIGH else HIGH
    down = logarithmic(LOW, high, top + HEIGHT, top)
    floor = next(each.floor for each in reversed(points) if each.rho is not None)
    labels = tuple(
        Tick(down(10.0**power), power_label(power)) for power in ((-1, 0, 1, 2) if high < HIGH else (0, 3, 6))
    )
    limits = LIMITS.get(floor, ())
    named = zip(("EQUAL", "DRIFT"), limits, strict=False)
    told = f", with the limits of {' and '.join(f'{name} ({limit:g})' for name, limit in named)}" if limits else ""
    bounds = tuple(Tick(down(limit), "") for limit in limits)
    paths = _only_dots(known, across, down)
    says = f"residual / noise floor{told}"
    return Drawing(says=says, bottom=top + HEIGHT, down=labels, limits=bounds, paths=paths)


def _memory(title: str, name: str) -> Callable[[Sequence[Point], Places, float], Drawing | None]:
    """The panel of a size. name: of its field."""

    def panel(points: Sequence[Point], across: Places, top: float) -> Drawing | None:
        known = [(index, size) for index, each in enumerate(points) if (size := getattr(each, name))]
        if not known:
            return None
        most = max(size for _, size in known)
        down = linear(0.0, most * 1.08, top + HEIGHT, top)
        labels = tuple(Tick(down(value), numbers.whole(value)) for value in (0.0, most / 2, most))
        paths = _only_dots(known, across, down)
        return Drawing(says=title, bottom=top + HEIGHT, down=labels, paths=paths)

    return panel


def _only_dots(known: Iterable[tuple[int, float]], across: Places, down: Places) -> dict[str, str]:
    return {"line-ink": "", "dots": _dots(known, across, down), "strokes": ""}


def _dots(known: Iterable[tuple[int, float]], across: Places, down: Places) -> str:
    return "".join(dot(across(index), down(value)) for index, value in known)


def _clipped(place: Places, top: float, bottom: float) -> Places:
    """The same places, but none outside of a panel."""

    def inside(value: float) -> float:
        found = place(value)
        return min(max(found, top), bottom) if math.isfinite(found) else top

    return inside


def _dates(points: Sequence[Point], across: Places) -> tuple[Tick, ...]:
    """The days of some results, the first and the last among them; their times where all are of one day."""
    last = len(points) - 1
    shown = sorted({round(last * part / (DATES - 1)) for part in range(DATES)})
    moments = {index: moment(time_of(points[index].created)) for index in shown}
    one_day = len({each[:10] for each in moments.values()}) == 1
    return tuple(Tick(across(index), each if one_day else each[:10]) for index, each in moments.items())


def _lines(series: Series, points: Sequence[Point], across: Places) -> Iterator[Line]:
    """The changes for the worse and for the better that are drawn."""
    places = {time_of(each.created): index for index, each in enumerate(points)}
    effects: dict[int, set[str]] = {}
    for change in series.changes:
        if change.created in places:
            effects.setdefault(places[change.created], set()).add(change.effect)
    for index, found in effects.items():
        if found & {WORSE, BETTER}:
            yield Line(across(index), WORSE if WORSE in found else BETTER)
