"""Requests to the worker of a model file; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..framework.filenodes import FileGraph
from ..framework.modelfile import Signature
from ..results.precision import Precision
from ..weights.stored import BatchNorm
from .codec import Request


@dataclass(frozen=True)
class ReadSignature(Request[Signature]):
    """Read the signature of the file that ``Build`` opened.

    When ``Build`` named no inputs, the inputs and outputs of later requests are those of the signature.
    """


@dataclass(frozen=True)
class WeightsRead:
    """The weights were written; the fields are those of ``weights.stored.Stored``."""

    norms: tuple[BatchNorm, ...]
    quantised: dict[str, str]
    places: dict[str, str]


@dataclass(frozen=True)
class ReadWeights(Request[WeightsRead]):
    """Write the weights that the file stores to ``path``, under the names that the file has for them."""

    path: str


@dataclass(frozen=True)
class Computed:
    """The outputs were computed.

    shapes: "case/name" -> shape of this output.
    dtypes: "case/name" -> dtype of the array that was written.
    seconds: duration of all calls, with the making of the callable.
    redrawn: whether other weights were drawn.
    """

    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, str]
    seconds: float
    redrawn: bool = False


@dataclass(frozen=True)
class Compute(Request[Computed]):
    """Compute the outputs of every case without timing blocks, and write them to ``path``.

    inputs: an array file with "case/name" for each input of the signature. An array is converted to the dtype of its input where
        that loses no kind of number: a bfloat16 input, for example, is given as float32.
    mode: a mode of the format; None: its first mode.
    float64: open the file a second time, in float64, and compute in float64.
    state: input -> output. From the second case on, this input is given this output of the case before, and not an array of the
        file.
    perturb: seed of a perturbation: each value of the state is replaced by a neighbouring one of float32. Of a float64 model every
        operation is perturbed, and of another one every weight, where the runtime gives access to it. None: no perturbation.
    redraw: seed with which all float32 weights are drawn anew, where the runtime gives access to them; None: the file's own.
    again: begin with the last case, and call a single case or a sequence once before. What changes from call to call then shows.
    anew: open the file once more, and call the cases in their order, as the steps of what it keeps from call to call.
    """

    inputs: str
    path: str
    mode: str | None = None
    float64: bool = False
    state: dict[str, str] = field(default_factory=dict)
    perturb: int | None = None
    redraw: int | None = None
    again: bool = False
    anew: bool = False


@dataclass(frozen=True)
class NodesTraced:
    """The values of the nodes were written. files: name of a value -> file name in the folder."""

    graph: FileGraph
    files: dict[str, str]


@dataclass(frozen=True)
class TraceNodes(Request[NodesTraced]):
    """Compute one case node by node, and write the value of every node into a folder; in float64 where the format can.

    inputs: array file. case: index of the case.
    """

    inputs: str
    case: int
    folder: str


@dataclass(frozen=True)
class FindRandomOperators(Request[tuple[str, ...]]):
    """Find the operators that draw random numbers, each with its place in the file, in words."""


@dataclass(frozen=True)
class ReadPrecision(Request[Precision]):
    """Find the precision of the weights and the arithmetic of the file that ``Build`` opened, as far as its format tells."""
