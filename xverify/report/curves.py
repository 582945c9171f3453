"""Loss curves drawn: in the terminal with plotext, and to a file with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UsageError
from ..results.records import Curve, Result, Row

FORMATS = (".png", ".svg")
MARKS = "ox+*#@%&"  # of subjects, in turn
TINTS = ("green+", "blue+", "magenta+", "cyan+", "orange+", "red+")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (2, 2)), (0, (7, 2, 1, 2)), (0, (1, 1)))
NEAREST, FARTHEST = 1e-9, 10.0  # distances from the reference that the lower panel has room for


def check(path: Path) -> None:
    """Whether ``draw`` could write it, asked before the run is made that it shows. Raises UsageError."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(f"{path}: loss curves are drawn as .png or .svg; the name must end in one of them")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no folder {path.parent}")
    try:
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        name = error.name or "matplotlib"
        raise UsageError(
            f"{path} is drawn with matplotlib, but {name} is not installed: pip install 'xverify[plot]'"
        ) from None


def in_terminal(rows: Iterable[Row], width: int = 100, height: int = 20, plain: bool = False) -> str:
    """The curves as text of so many columns, and a legend beneath; '' when no row has one. plain: no colours."""
    rows = list(rows)
    curves = _curves(rows)
    if not curves:
        return ""
    import plotext

    shared = next(iter(curves.values()))
    bottom, top = _window(curves)
    last = max(1, *(len(values) - 1 for curve in curves.values() for values in (curve.reference, curve.losses)))
    figure = plotext.figure
    plotext.terminal.limit(False, False)  # it has the size that was asked for, in a pipe too
    figure.clear.all()
    figure.plot_size(width, height)
    figure.theme("colorless" if plain else "simple")

    def paint(symbol: str, tint: str | None = None) -> Any:
        return plotext.marker(symbol, plotext.pixel(foreground=None if plain else tint))

    def line(values: Sequence[float], marker: Any, start: int = 0, every: int = 1, joined: bool = True) -> None:
        # What lies outside of the window goes along its edge: plotext would draw the whole way to it.
        points = [(step, min(max(value, bottom), top)) for step, value in enumerate(values) if math.isfinite(value)]
        xs, ys = [x for x, _ in points[start::every]], [y for _, y in points[start::every]]
        figure.draw(figure.signal(xs, ys, marker=marker).lines(joined))

    legend = [("⠤ reference", "⠤ reference"), ("· the band of its replicas", "· the band of its replicas")]
    if shared.judged < len(shared.reference):
        ends = shared.judged - 0.5
        figure.draw(figure.signal([ends, ends], [bottom, top], marker=paint("┊")).lines(True))
        legend.append((f"┊ judged for {shared.judged} of {len(shared.reference)} steps",) * 2)
    line(shared.low, paint("·"))
    line(shared.high, paint("·"))
    line(shared.reference, paint("braille"))
    looks = [(MARKS[index % len(MARKS)], TINTS[index % len(TINTS)]) for index in range(len(curves))]
    for curve, (_, tint) in zip(curves.values(), looks):
        line(curve.losses, paint("braille", tint))
    for index, ((subject, curve), (mark, tint)) in enumerate(zip(curves.items(), looks)):
        # The marks of subjects take turns, so that curves which coincide are all seen.
        line(curve.losses, paint(mark, tint), index, len(curves), joined=False)
        text = f"{mark} {_label(subject, curve)}"
        legend.append((text, text if plain else str(plotext.colorize(text, tint))))
    figure.title(f"loss by step, {_optimizer(rows)}")
    apart = next((size for size in (1, 2, 5, 10, 20, 50) if last <= 8 * size), 100)
    steps, losses = list(range(0, last + 1, apart)), [float(loss) for loss in np.linspace(bottom, top, 5)]
    figure.ruler("x", "lower").lim(0, last).ticks(steps, [str(step) for step in steps])
    figure.ruler("y", "left").lim(bottom, top).ticks(losses, [f"{loss:.3g}" for loss in losses])
    drawn: str = figure.build().string(colorless=plain)
    figure.clear.all()
    return "\n".join([*(text.rstrip() for text in drawn.splitlines()), *_filled(legend, width)])


def _filled(entries: Iterable[tuple[str, str]], width: int) -> list[str]:
    """Lines of so many columns of (what counts, what is written), three spaces apart."""
    lines: list[list[str]] = []
    used = width
    for text, written in entries:
        if used + 3 + len(text) > width:
            lines.append([])
            used = -3
        lines[-1].append(written)
        used += 3 + len(text)
    return ["   ".join(line) for line in lines]


def drawable(result: Result) -> bool:
    """Whether any row has a curve."""
    return bool(_curves(result.rows))


def draw(result: Result, path: Path) -> None:
    """Write the curves as PNG or SVG, by the name's suffix. Raises UsageError for another one, and when there is no curve.

    Above, the losses; below, how far each is from the reference, on a logarithmic scale on which the band can be seen.
    """
    check(path)
    curves = _curves(result.rows)
    if not curves:
        raise UsageError(
            f"{path}: no subject of {result.model} has a loss curve to draw; xverify run --task train makes them"
        )
    # By itself, without pyplot, a figure needs no display: its file is drawn by Agg, or as SVG.
    from matplotlib.figure import Figure

    shared = next(iter(curves.values()))
    reference, low, high = (np.array(values, float) for values in (shared.reference, shared.low, shared.high))
    figure = Figure(figsize=(9, 7), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    steps = np.arange(len(reference))
    above.fill_between(steps[: len(low)], low, high, color="0.8", label="band of the reference's replicas")
    above.plot(steps, reference, color="black", linewidth=2.5, label="reference")
    band = np.fmax(_apart(low, reference), _apart(high, reference))
    below.fill_between(steps[: len(low)], NEAREST / 3, band, color="0.8")
    for index, (subject, curve) in enumerate(curves.items()):
        losses = np.array(curve.losses, float)
        style = {"color": f"C{index % 10}", "linestyle": DASHES[index % len(DASHES)], "marker": ".", "markersize": 3}
        above.plot(np.arange(len(losses)), losses, label=_label(subject, curve), **style)
        distance = _apart(losses, reference)
        below.plot(np.arange(len(distance)), distance, **style)
    if shared.judged < len(reference):
        for panel in (above, below):
            panel.axvline(shared.judged - 0.5, color="0.3", linestyle="--", linewidth=1)
        above.lines[-1].set_label(f"judged for {shared.judged} of {len(reference)} steps")
    above.set(title=f"{result.model}, {_optimizer(result.rows)}", ylabel="loss", ylim=_window(curves))
    below.set(xlabel="step", ylabel="|loss − reference's| ÷ reference's", yscale="log", ylim=(NEAREST / 3, FARTHEST))
    above.legend(fontsize="small")
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}") from None


def _curves(rows: Iterable[Row]) -> dict[str, Curve]:
    """By subject. Of one run all have the same reference and band."""
    return {row.subject: row.training.curve for row in rows if row.training and row.training.curve}


def _optimizer(rows: Iterable[Row]) -> str:
    return next(row.training.optimizer for row in rows if row.training and row.training.curve)


def _label(subject: str, curve: Curve) -> str:
    ends = next((step for step, loss in enumerate(curve.losses) if not math.isfinite(loss)), None)
    return f"{subject}: {curve.verdict}" + (f", not finite at step {ends}" if ends is not None else "")


def _apart(losses: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """How far from the reference, as part of it, within what is shown: what is the same lies at the least distance."""
    count = min(len(losses), len(reference))
    with np.errstate(all="ignore"):
        share: np.ndarray = np.abs(losses[:count] - reference[:count]) / np.abs(reference[:count])
    return np.where(np.isfinite(share), np.clip(share, NEAREST, 10 * FARTHEST), np.nan)


def _window(curves: dict[str, Curve]) -> tuple[float, float]:
    """The losses to show: of the reference and its band, and half as much to each side where a subject leaves them."""
    shared = next(iter(curves.values()))
    right = [loss for part in (shared.reference, shared.low, shared.high) for loss in part if math.isfinite(loss)]
    right = right or [0.0]
    found = [loss for curve in curves.values() for loss in curve.losses if math.isfinite(loss)] + right
    span = max(right) - min(right) or abs(right[0]) or 1.0
    bottom, top = max(min(found), min(right) - span / 2), min(max(found), max(right) + span / 2)
    return max(bottom - 0.05 * span, 0.0 if bottom >= 0 else -math.inf), top + 0.05 * span
