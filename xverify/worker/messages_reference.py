"""What only the worker of a reference is asked, and a worker whose layers are made faulty on purpose: see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from ..framework.capture import LayerCall
from ..verdict.findings import ReplayReport
from ..verdict.layers import Place
from .codec import Reply, Request
from .messages import Done


@dataclass(frozen=True)
class FileRead(Reply):
    """refused: why the weight file cannot be read; None when it was."""

    refused: str | None = None


@dataclass(frozen=True)
class ReadFile(Request[FileRead]):
    """Turn a weight file that only this framework reads into the array file ``path``. trust: let it run pickled code."""

    file: str
    path: str
    trust: bool


@dataclass(frozen=True)
class Calibrate(Request[Done]):
    """Set the batch-norm statistics to those of the first cases of ``path``, whose batches have ``batch`` items."""

    path: str
    batch: int


@dataclass(frozen=True)
class Export(Request[Done]):
    """Write the model as ONNX to ``path``, traced on the first case of ``inputs``. Its weights must be loaded again then."""

    inputs: str
    path: str


@dataclass(frozen=True)
class Evaluated(Reply):
    """shapes: "case/name" -> the shape of that output."""

    shapes: dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class Evaluate(Request[Evaluated]):
    """Compute the outputs of every case, untimed, into ``path``. float64: with the weights and inputs as float64."""

    inputs: str
    path: str
    weights: str
    float64: bool


@dataclass(frozen=True)
class LayersListed(Reply):
    """layers: canonical names, in the order of their definition."""

    layers: tuple[str, ...]


@dataclass(frozen=True)
class ListLayers(Request[LayersListed]):
    """List the layers that a replay compares."""


@dataclass(frozen=True)
class LayersOrdered(Reply):
    """order: the layers in the order of their first call."""

    order: tuple[Place, ...]


@dataclass(frozen=True)
class LayerOrder(Request[LayersOrdered]):
    """Find the order in which layers are first called on the first case."""

    inputs: str
    weights: str
    seed: int


@dataclass(frozen=True)
class OutputFloor:
    """floor: the rms of an output's noise. size: the rms of the output itself."""

    floor: float
    size: float


@dataclass(frozen=True)
class FloorsMeasured(Reply):
    """floors: "case/name" -> the noise floor of that output. untested, tested: weights and constants that a fault of could
    not, and could, show on the first case.
    """

    floors: dict[str, OutputFloor]
    untested: tuple[str, ...]
    tested: tuple[str, ...]


@dataclass(frozen=True)
class NoiseFloors(Request[FloorsMeasured]):
    """Compute the outputs of every case in float64 into ``path``, and the noise floor of each."""

    inputs: str
    path: str
    weights: str
    seed: int


@dataclass(frozen=True)
class Replayed(Reply):
    """report: of the replay."""

    report: ReplayReport


@dataclass(frozen=True)
class Replay(Request[Replayed]):
    """Replay what another framework captured on this case.

    folder: of the captured arrays. records, channels_last: of the capture. planted: (layer, index of the fault) that the
    capture is known to have; None: no known fault.
    """

    folder: str
    records: tuple[LayerCall, ...]
    channels_last: bool
    inputs: str
    case: int
    weights: str
    seed: int
    planted: tuple[str, int] | None = None


# -- faults -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fault:
    """One fault that a layer of the model can have.

    index: of the fault among those of this layer. kind: the name of the alternative. says: a clause for the report. rounding:
    whether it computes the right result in another precision.
    """

    layer: str
    index: int
    kind: str
    says: str
    rounding: bool


@dataclass(frozen=True)
class FaultsListed(Reply):
    """faults: in the order of the layers."""

    faults: tuple[Fault, ...]


@dataclass(frozen=True)
class ListFaults(Request[FaultsListed]):
    """List every fault of the catalogue that a layer of this model can have."""


@dataclass(frozen=True)
class PlantFault(Request[Done]):
    """Make a layer of the model faulty; the fault planted before is removed. index: of ``Fault``."""

    layer: str
    index: int


@dataclass(frozen=True)
class RemoveFault(Request[Done]):
    """Remove the fault that is planted, if one is."""
