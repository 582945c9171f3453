"""Records of a plan of precisions: which layers of a converted file stay in float32, what each costs, and what was tried."""

from __future__ import annotations

from dataclasses import dataclass, field

from .figures import Figures
from .speed import Speed


@dataclass(frozen=True)
class PlannedLayer:
    """A layer whose precision was chosen.

    layer: name of its first node. kind: the operator of this node.
    sqnr: power of the outputs / power of their error when this layer alone is in the lower precision, in decibels, of the worst
        output; None when it was not measured, or when there is no error.
    overflows: whether outputs are infinite or missing then.
    kept: whether it stays in float32.
    """

    layer: str
    kind: str
    sqnr: float | None = None
    overflows: bool = False
    kept: bool = False


@dataclass(frozen=True)
class PlannedFile:
    """A file with some of the layers in float32.

    kept: the names of these layers. bytes: size of the file. figures: output -> figures, on the first runtime.
    unmet: a sentence about each condition of --accept that does not hold.
    chosen: whether this is the file that was written. speed: None where it was not timed.
    """

    kept: tuple[str, ...]
    bytes: int
    figures: dict[str, Figures] = field(default_factory=dict)
    unmet: tuple[str, ...] = ()
    chosen: bool = False
    speed: Speed | None = None


@dataclass(frozen=True)
class Plan:
    """The layers that stay in float32, so that the conditions of --accept hold.

    precision: of all other layers, "float16" or "int8". accept: the conditions.
    layers: all layers, the most expensive first. files: some of the files that were tried, from all layers in float32 to none.
    tried: number of files that were tried. seconds: duration of the search.
    stopped: why the search ended early, or found no such file; "" otherwise.
    """

    precision: str
    accept: str
    layers: tuple[PlannedLayer, ...]
    files: tuple[PlannedFile, ...]
    tried: int = 0
    seconds: float = 0.0
    stopped: str = ""
