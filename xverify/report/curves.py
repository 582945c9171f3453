"""Loss curves: drawn in the terminal with plotext, and to a file with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import installed, writing
from ..errors import UsageError, shown
from ..outputs import GENERATOR
from ..results.records import Curve, Result, Row
from ..weights.canonical import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMATS = (".png", ".svg")
MARKS = "ox+*#@%&"  # one for each subject
COLOURS = ("green+", "blue+", "magenta+", "cyan+", "orange+", "red+")
DASHES = ("-", (0, (5, 2)), (0, (2, 2)), (0, (7, 2, 1, 2)), (0, (1, 1)))
NEAREST, FARTHEST = 1e-9, 10.0  # the range of distances from the reference in the lower panel


def check(path: Path) -> None:
    """Check before a run that ``draw`` can write the file. Raises UsageError."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: loss curves are drawn as .png or .svg; the name must end in one of them")
    writing.check("--curve", path)
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        name = error.name or "matplotlib"
        raise UsageError(
            f"{path} is drawn with matplotlib, but {name} is not installed: {installed.extra('plot')}"
        ) from None


# -- in the terminal --------------------------------------------------------------------------------------------------


def in_terminal(rows: Iterable[Row], width: int = 100, height: int = 20, plain: bool = False) -> str:
    """Draw the curves and their legend as text; '' when no row has a curve.

    width, height: characters of the picture; the legend is printed below it.
    plain: without colours.
    """
    rows = list(rows)
    pictures = [
        _Picture(curves, plain).drawn(_title(loss, rows), width, height) for loss, curves in by_loss(rows).items()
    ]
    return "\n".join(pictures)


class _Picture:
    """Loss curves as characters. plotext draws on one figure of its own, which is cleared before and afterwards."""

    def __init__(self, curves: Mapping[str, Curve], plain: bool) -> None:
        import plotext

        self.plotext, self.figure = plotext, plotext.figure
        self.curves, self.plain = curves, plain
        self.shared = next(iter(curves.values()))  # all have the same reference and band
        self.bottom, self.top = _window(curves)
        self.legend: list[tuple[str, str]] = []  # (text without colours, text with colours) of every entry

    def drawn(self, title: str, width: int, height: int) -> str:
        self.plotext.terminal.limit(False, False)  # keep the given size when the output is no terminal, too
        self.figure.clear.all()
        self.figure.plot_size(width, height)
        self.figure.theme("colorless" if self.plain else "simple")
        self._draw_reference()
        self._draw_subjects()
        self.figure.title(shown(title))
        self._draw_axes()
        text: str = self.figure.build().string(colorless=self.plain)
        self.figure.clear.all()
        return "\n".join([*(line.rstrip() for line in text.splitlines()), *_wrapped(self.legend, width)])

    def _draw_reference(self) -> None:
        shared = self.shared
        self._explain("⠤ reference")
        self._explain("· the band of its replicas")
        if shared.judged < len(shared.reference):
            end = shared.judged - 0.5
            vertical = self.figure.signal([end, end], [self.bottom, self.top], marker=self._marker("┊"))
            self.figure.draw(vertical.lines(True))
            self._explain(f"┊ judged for {shared.judged} of {len(shared.reference)} steps")
        self._line(shared.low, "·")
        self._line(shared.high, "·")
        self._line(shared.reference, "braille")

    def _draw_subjects(self) -> None:
        looks = [(MARKS[index % len(MARKS)], COLOURS[index % len(COLOURS)]) for index in range(len(self.curves))]
        for curve, (_, colour) in zip(self.curves.values(), looks):
            self._line(curve.losses, "braille", colour)
        for index, ((subject, curve), (mark, colour)) in enumerate(zip(self.curves.items(), looks)):
            # The marks of subjects are on different steps, so that curves which coincide are all visible.
            self._line(curve.losses, mark, colour, start=index, every=len(self.curves), joined=False)
            self._explain(f"{mark} {shown(subject)}: {curve.outcome}", colour)

    def _draw_axes(self) -> None:
        last = max(1, *(len(each) - 1 for curve in self.curves.values() for each in (curve.reference, curve.losses)))
        apart = next((size for size in (1, 2, 5, 10, 20, 50) if last <= 8 * size), 100)
        steps = list(range(0, last + 1, apart))
        losses = [float(loss) for loss in np.linspace(self.bottom, self.top, 5)]
        self.figure.ruler("x", "lower").lim(0, last).ticks(steps, [str(step) for step in steps])
        self.figure.ruler("y", "left").lim(self.bottom, self.top).ticks(losses, [f"{loss:.3g}" for loss in losses])

    def _line(
        self,
        losses: Sequence[float],
        mark: str,
        colour: str | None = None,
        start: int = 0,
        every: int = 1,
        joined: bool = True,
    ) -> None:
        # A loss outside of the window is drawn on its edge, because plotext would extend the axis to it.
        points = [
            (step, min(max(loss, self.bottom), self.top)) for step, loss in enumerate(losses) if math.isfinite(loss)
        ]
        xs, ys = [x for x, _ in points[start::every]], [y for _, y in points[start::every]]
        self.figure.draw(self.figure.signal(xs, ys, marker=self._marker(mark, colour)).lines(joined))

    def _marker(self, mark: str, colour: str | None = None) -> Any:  # plotext has no types
        return self.plotext.marker(mark, self.plotext.pixel(foreground=None if self.plain else colour))

    def _explain(self, text: str, colour: str | None = None) -> None:
        """Add an entry to the legend."""
        coloured = text if self.plain or colour is None else str(self.plotext.colorize(text, colour))
        self.legend.append((text, coloured))


def _wrapped(entries: Iterable[tuple[str, str]], width: int) -> list[str]:
    """The entries of a legend in lines, three spaces apart. Each entry is (text without colours, text with colours)."""
    lines: list[list[str]] = []
    used = width
    for text, written in entries:
        if used + 3 + len(text) > width:
            lines.append([])
            used = -3
        lines[-1].append(written)
        used += 3 + len(text)
    return ["   ".join(line) for line in lines]


# -- to a file --------------------------------------------------------------------------------------------------------


def drawable(result: Result) -> bool:
    """Whether any row has a curve."""
    return bool(by_loss(result.rows))


def draw(result: Result, path: Path) -> None:
    """Write the curves as PNG or SVG, depending on the suffix of the name.

    The upper panel shows the losses. The lower panel shows their distance from the reference on a logarithmic scale, on which the
    band is visible. Every loss has a column of these. Raises UsageError for another suffix, and when there is no curve, and
    NotWritten.
    """
    check(path)
    losses = by_loss(result.rows)
    if not losses:
        raise UsageError(
            f"{path}: no subject of {result.model} has a loss curve to draw; xverify run MODEL --task train makes them"
        )
    # Without pyplot, a figure needs no display.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9 * len(losses), 7), layout="constrained")
    figure.suptitle(shown(f"{result.model}, {_optimizer(result.rows)}"))
    panels = figure.subplots(2, len(losses), sharex=True, squeeze=False, height_ratios=(3, 2))
    for (loss, curves), upper, lower in zip(losses.items(), *panels):
        _draw_reference(upper, lower, next(iter(curves.values())))
        _draw_subjects(upper, lower, curves)
        _draw_end_of_judging(upper, lower, next(iter(curves.values())))
        upper.set(ylabel=shown(f"loss {loss}".strip()), ylim=_window(curves))
        lower.set(
            xlabel="step", ylabel="|loss − reference's| ÷ reference's", yscale="log", ylim=(NEAREST / 3, FARTHEST)
        )
        upper.legend(fontsize="small")
    with writing.replacing(path) as made:
        name = "Software" if path.suffix.lower() == ".png" else "Creator"
        figure.savefig(made, dpi=150, metadata={name: GENERATOR})


def _draw_reference(upper: Axes, lower: Axes, shared: Curve) -> None:
    reference, low, high = (np.array(values, float) for values in (shared.reference, shared.low, shared.high))
    steps = np.arange(len(reference))
    upper.fill_between(steps[: len(low)], low, high, color="0.8", label="band of the reference's replicas")
    upper.plot(steps, reference, color="black", linewidth=2.5, label="reference")
    band = np.fmax(_distance(low, reference), _distance(high, reference))
    lower.fill_between(steps[: len(low)], NEAREST / 3, band, color="0.8")


def _draw_subjects(upper: Axes, lower: Axes, curves: Mapping[str, Curve]) -> None:
    for index, (subject, curve) in enumerate(curves.items()):
        losses = np.array(curve.losses, float)
        style: dict[str, Any] = {  # Any: each keyword of matplotlib has a type of its own
            "color": f"C{index % 10}", "linestyle": DASHES[index % len(DASHES)], "marker": ".", "markersize": 3,
        }  # fmt: skip
        upper.plot(np.arange(len(losses)), losses, label=f"{shown(subject)}: {curve.outcome}", **style)
        distance = _distance(losses, np.array(curve.reference, float))
        lower.plot(np.arange(len(distance)), distance, **style)


def _draw_end_of_judging(upper: Axes, lower: Axes, shared: Curve) -> None:
    if shared.judged < len(shared.reference):
        for panel in (upper, lower):
            panel.axvline(shared.judged - 0.5, color="0.3", linestyle="--", linewidth=1)
        upper.lines[-1].set_label(f"judged for {shared.judged} of {len(shared.reference)} steps")


# -- for both ---------------------------------------------------------------------------------------------------------


def by_loss(rows: Iterable[Row]) -> dict[str, dict[str, Curve]]:
    """Name of a loss -> subject -> curve. All curves of one loss in a run have the same reference and band."""
    found = dict[str, dict[str, Curve]]()
    for row in rows:
        for curve in row.training.curves if row.training else ():
            found.setdefault(curve.loss, {})[row.subject] = curve
    return found


def _title(loss: str, rows: Iterable[Row]) -> str:
    """The title of the curves of a loss."""
    return f"loss {loss!r} by step, {_optimizer(rows)}" if loss else f"loss by step, {_optimizer(rows)}"


def _optimizer(rows: Iterable[Row]) -> str:
    return next(row.training.optimizer for row in rows if row.training and row.training.curves)


def _distance(losses: Array, reference: Array) -> Array:
    """|loss − reference's| ÷ reference's at each step. Zero becomes NEAREST, so that it is drawn; NaN is not drawn."""
    count = min(len(losses), len(reference))
    with np.errstate(all="ignore"):
        share: Array = np.abs(losses[:count] - reference[:count]) / np.abs(reference[:count])
    return np.where(np.isfinite(share), np.clip(share, NEAREST, 10 * FARTHEST), np.nan)


def _window(curves: Mapping[str, Curve]) -> tuple[float, float]:
    """The range of losses to show: that of the reference and its band, extended by at most half of it where a subject leaves it."""
    shared = next(iter(curves.values()))
    right = [loss for part in (shared.reference, shared.low, shared.high) for loss in part if math.isfinite(loss)]
    right = right or [0.0]
    found = [loss for curve in curves.values() for loss in curve.losses if math.isfinite(loss)] + right
    span = max(right) - min(right) or abs(right[0]) or 1.0
    bottom, top = max(min(found), min(right) - span / 2), min(max(found), max(right) + span / 2)
    return max(bottom - 0.05 * span, 0.0 if bottom >= 0 else -math.inf), top + 0.05 * span
