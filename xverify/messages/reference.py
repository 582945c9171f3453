"""Requests to the worker of a reference, and to a worker in which faults are planted; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..framework.adapter import Activations
from ..framework.capture import LayerCall
from ..verdict.findings import ReplayReport, Rounding
from ..verdict.matching import Place
from .codec import Request


@dataclass(frozen=True)
class ParametersRead:
    """The parameters of the function that computes the model, by position.

    needed, optional: those without and with a default.
    others: whether it takes any further positional arguments.
    """

    needed: tuple[str, ...]
    optional: tuple[str, ...]
    others: bool


@dataclass(frozen=True)
class ReadParameters(Request[ParametersRead]):
    """Read the names of what the model takes."""


@dataclass(frozen=True)
class NameTensors(Request[None]):
    """Name the inputs and outputs of the model, where they were not known when it was built: name -> layout, as in ``Build``."""

    inputs: dict[str, str | None]
    outputs: dict[str, str | None]


@dataclass(frozen=True)
class Calibrate(Request[None]):
    """Set the batch-norm statistics to those of the first input cases.

    path: an array file of input cases.
    batch: number of items in each case; None: the inputs have no batch axis, and the first case alone is used.
    """

    path: str
    batch: int | None


@dataclass(frozen=True)
class SizeActivations(Request[Activations]):
    """Tell the sizes of the activations of a pass on the first case of ``inputs``, without computing it.

    It is refused where they cannot be known without the values.

    training: whether gradients will be computed.
    """

    inputs: str
    training: bool


@dataclass(frozen=True)
class ComputeWeights(Request[None]):
    """Write the weights that the model computes from others to ``path``: in float64 from these weights, and rounded once.

    weights: array file.
    """

    weights: str
    path: str


@dataclass(frozen=True)
class Export(Request[str]):
    """Write the model as ONNX to ``path``, traced on the first case of ``inputs``. Its weights are changed, so they must be
    loaded again. The reply tells why the usual exporter could not make the export; "" when it did.

    weights: whether the file holds weights. Without them, a weight is an input of the graph, or an initializer with other values.
    axes: the axes that the file leaves open; see ``framework.reference.OpenAxes``.
    decoder: whether the file takes and returns a cache, where the model does. It then has open axes of its own.
    """

    inputs: str
    path: str
    weights: bool = True
    axes: dict[str, tuple[str | None, ...]] = field(default_factory=dict)
    decoder: bool = False


@dataclass(frozen=True)
class FindUnused(Request[tuple[str, ...]]):
    """Find the weights, of these, on which no output of the first case depends. All weights must be loaded again afterwards.

    inputs: array file of the input cases.
    names: canonical names.
    """

    inputs: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Evaluate(Request[dict[str, tuple[int, ...]]]):
    """Compute the outputs of every case without timing, and write them to ``path``.

    The reply has the shape of every output: "case/name" -> shape.

    inputs, weights: array files.
    float64: whether to convert weights and inputs to float64 first.
    state: input -> output. From the second case on, this input is what this output was in the case before.
    restore: array file of the weights that the model gets afterwards; "": it keeps the others.
    """

    inputs: str
    path: str
    weights: str
    float64: bool
    state: dict[str, str] = field(default_factory=dict)
    restore: str = ""


@dataclass(frozen=True)
class ListLayers(Request[tuple[str, ...]]):
    """List the layers that a replay compares, by canonical names in the order of their definition."""


@dataclass(frozen=True)
class LayerOrder(Request[tuple[Place, ...]]):
    """Find the order in which layers are first called on the first case."""

    inputs: str
    weights: str
    seed: int


@dataclass(frozen=True)
class FloorsMeasured:
    """The noise of the outputs was measured.

    untested, tested: weights and constants in which a fault would not, and would, be visible on the first case.
    inconsistent: where the model computes something else in float32 than in float64, in words; "" when it does not.
    growth: where the noise grows too large, as a clause; "" where no single place makes it so.
    """

    untested: tuple[str, ...]
    tested: tuple[str, ...]
    inconsistent: str = ""
    growth: str = ""


@dataclass(frozen=True)
class NoiseFloors(Request[FloorsMeasured]):
    """Compute the outputs of the cases in float64 into ``path``, and the noise of each of their values into ``noise``.

    samples: perturbed passes of each case. cases: the cases to compute; empty: all, with the coverage of the first.
    state: input -> output. From the second case on, this input is what this output was in the case before, in each pass by itself.
    """

    inputs: str
    path: str
    noise: str
    weights: str
    seed: int
    samples: int = 1
    cases: tuple[int, ...] = ()
    state: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class MeasureRoundings(Request[None]):
    """Compute the outputs of every case in float64, with and without these roundings of layers, and write their changes.

    path: gets the change of every value, and the share of values that change of outputs that are whole numbers.
    """

    inputs: str
    path: str
    weights: str
    seed: int
    roundings: tuple[Rounding, ...]


@dataclass(frozen=True)
class Replay(Request[ReplayReport]):
    """Replay the capture of another framework on this case.

    folder: folder of the captured arrays.
    records, channels_last: as in ``Captured``.
    planted: (layer, index of the fault) of a fault that was planted in the captured model; None: there is none.
    watched: the layers whose calls would have been captured.
    """

    folder: str
    records: tuple[LayerCall, ...]
    channels_last: bool
    inputs: str
    case: int
    weights: str
    seed: int
    planted: tuple[str, int] | None = None
    watched: tuple[str, ...] = ()


# -- faults -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One fault that a layer of the model can have.

    index: place of the fault in the list of this layer.
    kind: name of the fault.
    says: a clause for the report.
    rounding: whether the layer is right but computes in another precision.
    """

    layer: str
    index: int
    kind: str
    says: str
    rounding: bool


@dataclass(frozen=True)
class ListFaults(Request[tuple[Fault, ...]]):
    """List every fault of the catalogue that a layer of this model can have, in the order of the layers."""


@dataclass(frozen=True)
class PlantFault(Request[None]):
    """Make a layer of the model faulty; a fault that was planted before is removed. index: see ``Fault``."""

    layer: str
    index: int


@dataclass(frozen=True)
class RemoveFault(Request[None]):
    """Remove the fault that is planted, if one is."""


@dataclass(frozen=True)
class FaultyCalls(Request[None]):
    """Compute what a layer with a fault returns for the inputs that another framework gave it, and write it into an array file.

    layer, index: see ``Fault``.
    port_layer: what the captured framework calls the layer.
    folder, records, channels_last, inputs, case, weights, seed: as in ``Replay``; the records are those of this layer.
    path: the array file; its names are those of ``capture.returned_key``.
    """

    layer: str
    index: int
    port_layer: str
    folder: str
    records: tuple[LayerCall, ...]
    channels_last: bool
    inputs: str
    case: int
    weights: str
    seed: int
    path: str


# -- what the inputs reach ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InputsReach:
    """What the passes of a model did.

    unreached: what no input case reached, each with its place.
    padding: input of ids -> the padding id of the embedding that looks them up.
    """

    unreached: tuple[str, ...] = ()
    padding: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class WatchInputs(Request[InputsReach]):
    """Compute every case, and watch what the values reach.

    inputs, weights: array files; without weights, the model has those that it has now.
    """

    inputs: str
    weights: str = ""
