"""Requests about ONNX graphs, to the runtime of one and to the worker that evaluates it in float64; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..results.precision import LayerCost, Precision
from ..verdict.findings import ReplayReport
from ..workload.wholes import Whole
from .codec import Request
from .files import NodesTraced


@dataclass(frozen=True)
class NodesCaptured:
    """The values of the graph were written.

    files: name of a value -> file name in the folder. left_out: why values are missing; "" when all are there.
    """

    files: dict[str, str]
    left_out: str = ""


@dataclass(frozen=True)
class CaptureNodes(Request[NodesCaptured]):
    """Compute one case without optimisations, and write the value of every node into a folder.

    inputs: array file. case: index of the case.
    graph: an ONNX file to compute in the place of the opened one, whose external data it uses; "": the opened one.
    """

    inputs: str
    case: int
    folder: str
    graph: str = ""


@dataclass(frozen=True)
class WriteGraph(Request[dict[str, str]]):
    """Write the graph of a file of another format as an ONNX file of the same meaning into ``path``; see ``ModelFile.write_onnx``.

    The reply has the name of each node, and its operator in the file.

    inputs: array file, whose first case fixes the shapes.
    """

    inputs: str
    path: str


@dataclass(frozen=True)
class GraphDescribed:
    """What the graph tells about itself.

    vocabulary: input of ids -> number of rows of the table that they select from.
    nodes: number of nodes.
    precision: that of its weights and arithmetic.
    random: the nodes that draw random numbers, each with its operator.
    wholes: input of whole numbers -> what the graph does with it.
    declared: output -> the size of each dimension, its name, or None where it is open; only where the file says them.
    taken: the same of the inputs.
    ranges: input -> the smallest and the largest number that it may hold, where nothing but quantisers take it.
    widths: input of a cache -> the size of its last axis, where the file leaves it open and its nodes tell it.
    """

    vocabulary: dict[str, int]
    nodes: int
    precision: Precision
    random: tuple[str, ...] = ()
    wholes: dict[str, Whole] = field(default_factory=dict)
    declared: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    taken: dict[str, tuple[int | str | None, ...]] = field(default_factory=dict)
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    widths: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DescribeGraph(Request[GraphDescribed]):
    """Read an ONNX file."""

    file: str


@dataclass(frozen=True)
class Hidden:
    """The weights in which a fault would not show, of so many that were tried."""

    names: tuple[str, ...]
    tried: int


@dataclass(frozen=True)
class GraphEvaluated:
    """The outputs were computed.

    cases: number of cases, the first ones, that were computed.
    seconds: duration of the last one.
    unmoved: whether the outputs of the first one stay within the limits with other weights; False where it was not asked.
    hidden: the same weight by weight; None where that would take long, and where it was not asked.
    undecided: "case/output" -> the decision that it follows from and rounding may change, in words; only those with one.
    overflows: case -> the first node whose values float16 cannot hold, in words; only cases with one.
    ties: "case/output" -> (place in the flat array, first, last index) of numbers that select from exactly equal values, where
        rounding may change which.
    unreached: the branches, trips and sides of comparisons and clips that no case reached, by node; () where it was not asked.
    """

    cases: int
    seconds: float
    unmoved: bool = False
    hidden: Hidden | None = None
    undecided: dict[str, str] = field(default_factory=dict)
    overflows: dict[str, str] = field(default_factory=dict)
    ties: dict[str, tuple[tuple[int, int, int], ...]] = field(default_factory=dict)
    unreached: tuple[str, ...] = ()


@dataclass(frozen=True)
class EvaluateGraph(Request[GraphEvaluated]):
    """Compute the outputs of the cases in float64 into ``path``, and the noise of each of their values into ``noise``.

    file: ONNX file. inputs: array file.
    enough: seconds within which further cases are expected to end; two cases are always computed.
    approximated: names of nodes that the runtime approximates, whose error is added to the noise.
    state: input -> output. From the second case on, this input is what this output was in the case before, in each pass by itself.
    samples: perturbed evaluations of each case. cases: the cases to compute; empty: all, from the first.
    witness: whether to evaluate the first case with other weights, too, and to tell what no case reached.
    """

    file: str
    inputs: str
    path: str
    noise: str
    seed: int
    enough: float
    approximated: tuple[str, ...] = ()
    state: dict[str, str] = field(default_factory=dict)
    samples: int = 2
    cases: tuple[int, ...] = ()
    witness: bool = False


@dataclass(frozen=True)
class ReplayGraph(Request[ReplayReport]):
    """Compute every node again in float64 from the values that a runtime gave it.

    file: ONNX file. inputs, case: what the runtime computed on.
    folder, values: the folder and the files of ``NodesCaptured``.
    data: the folder of the external data; "": that of the file. channels_last, steps: see ``replay``.
    """

    file: str
    inputs: str
    case: int
    folder: str
    values: dict[str, str]
    seed: int
    data: str = ""
    channels_last: bool = False
    steps: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class TakeBranches(Request[bool]):
    """Write an ONNX file into ``path`` that has, in the place of each If, the branch that one case takes.

    The reply tells whether a file was written: none is when the graph has no branches.

    file: ONNX file. inputs, case: what the branches are taken for.
    """

    file: str
    inputs: str
    case: int
    path: str


@dataclass(frozen=True)
class GraphSide:
    """The graph of one of two files, with its values.

    file: an ONNX file, which is evaluated in float64. inputs: its input cases, an array file.
    traced: the nodes of a file of another format, or the calls of the layers of a model; None for an ONNX file.
    folder: of their values. layers: whether the nodes are the layers of a model, between which more may be computed.
    """

    file: str = ""
    inputs: str = ""
    traced: NodesTraced | None = None
    folder: str = ""
    layers: bool = False


@dataclass(frozen=True)
class FindDivergence(Request[tuple[str, ...]]):
    """Find the first node of a file whose value another file, the reference, does not have.

    The reply has sentences on where the file begins to compute something else; none where that is not found.

    case: index of the case. outputs: name of an output of the reference -> its name in the file.
    any_order: whether the axes of an image are turned. coarse: the relative difference that the precision of the file explains.
    general: whether the inputs of the case are random, and not zeros, for example.
    """

    file: GraphSide
    reference: GraphSide
    case: int
    outputs: dict[str, str]
    any_order: bool
    coarse: float
    general: bool = True


@dataclass(frozen=True)
class RoundingEvaluated:
    """The changes of the outputs by rounding were computed.

    clipped: "case/node" -> share of the power of what a node quantises that lies outside of its range; only those above 0.
    cases: number of cases, the first ones, that were computed.
    """

    clipped: dict[str, float]
    cases: int


@dataclass(frozen=True)
class EvaluateRounding(Request[RoundingEvaluated]):
    """Compute how much rounding to a lower precision changes the outputs of a graph, with perturbed evaluations in float64.

    file: ONNX file. inputs: array file.
    by_weights, by_all: array files that get the rms of the change of every value: when weights and quantised values are rounded,
        and when all results are rounded, too.
    weights, results: unit roundoff to which constants and results are rounded; None: that of the types that the file declares.
    enough: seconds within which further cases are expected to end; two cases are always computed.
    coarse: whether scales that are far coarser than necessary have the noise of their steps, and not of those that are necessary.
    reference: ONNX file; numbers of narrow types that it stores, too, do not change; "" for none.
    """

    file: str
    inputs: str
    by_weights: str
    by_all: str
    seed: int
    enough: float
    weights: float | None = None
    results: float | None = None
    coarse: bool = False
    reference: str = ""


@dataclass(frozen=True)
class LayersRanked:
    """The layers of a quantised file by what they cost; see ``results.precision.Quantisation``."""

    layers: tuple[LayerCost, ...]
    known: int
    stopped: str
    seconds: float


@dataclass(frozen=True)
class RankLayers(Request[LayersRanked]):
    """Compute what the quantisation of each layer of a file costs at the outputs, against the float file that it was made from.

    file, reference: ONNX files. inputs, reference_inputs: array files with the same cases under the names of each.
    enough: seconds after which no further cost is computed.
    """

    file: str
    reference: str
    inputs: str
    reference_inputs: str
    case: int
    enough: float


@dataclass(frozen=True)
class RoundedWeightsCompared:
    """The weights of a file in lower precision that are not the reference's.

    sentences: one about each weight that differs by more than rounding to a floating-point type explains.
    steps: one about each quantised weight that differs by more than its step. notes: on quantised weights that are not compared.
    """

    sentences: tuple[str, ...]
    steps: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompareRoundedWeights(Request[RoundedWeightsCompared]):
    """Compare every value of the weights of a file in lower precision with that in the reference.

    Weights in floating-point types are compared with those of the same name, and quantised ones with those of the same layer.

    inputs: an array file of the reference, by whose first cases the results of layers are compared; "" for none.
    """

    file: str
    reference: str
    inputs: str = ""


@dataclass(frozen=True)
class WeightsCompared:
    """sentences: one about each constant that has the name of a weight, and other values.

    known: number of weights. named: number of those of which a constant has the name and shape.
    found: number of those whose values some constant has, under any name, also transposed.
    """

    sentences: tuple[str, ...]
    known: int
    named: int
    found: int


@dataclass(frozen=True)
class CompareWeights(Request[WeightsCompared]):
    """Compare the constants of an ONNX file with weights.

    weights: an array file.
    """

    file: str
    weights: str


@dataclass(frozen=True)
class FindUnlike(Request[tuple[str, ...]]):
    """Find the constants of an ONNX file that are the reference's but for some values, or that decide otherwise.

    The reply has a sentence about each. reference: an ONNX file, or an array file of weights.
    """

    file: str
    reference: str
