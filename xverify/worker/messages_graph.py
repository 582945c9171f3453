"""Requests about ONNX graphs, to the runtime of one and to the worker that evaluates it in float64; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from .codec import Reply, Request
from .messages_reference import OutputFloor, Replayed


@dataclass(frozen=True)
class NodesCaptured(Reply):
    """The values of the graph were written.

    files: name of a value -> file name in the folder. left_out: why values are missing; "" when all are there.
    """

    files: dict[str, str]
    left_out: str = ""


@dataclass(frozen=True)
class CaptureNodes(Request[NodesCaptured]):
    """Compute one case without optimisations, and write the value of every node into a folder.

    inputs: array file. case: index of the case.
    """

    inputs: str
    case: int
    folder: str


@dataclass(frozen=True)
class GraphDescribed(Reply):
    """What the graph tells about itself.

    vocabulary: input of ids -> number of rows of the table that they select from.
    nodes: number of nodes.
    precision: the precision in which it computes, in words.
    """

    vocabulary: dict[str, int]
    nodes: int
    precision: str


@dataclass(frozen=True)
class DescribeGraph(Request[GraphDescribed]):
    """Read an ONNX file."""

    file: str


@dataclass(frozen=True)
class GraphEvaluated(Reply):
    """The outputs were computed.

    floors: "case/name" -> noise floor of this output.
    cases: number of cases, the first ones, that were computed.
    seconds: duration of all of them.
    """

    floors: dict[str, OutputFloor]
    cases: int
    seconds: float


@dataclass(frozen=True)
class EvaluateGraph(Request[GraphEvaluated]):
    """Compute the outputs of the cases in float64 into ``path``, and the noise floor of each.

    file: ONNX file. inputs: array file.
    enough: seconds after which no further case is begun; two cases are always computed.
    state: input -> output. From the second case on, this input is what this output was in the case before, in each pass by itself.
    """

    file: str
    inputs: str
    path: str
    seed: int
    enough: float
    state: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ReplayGraph(Request[Replayed]):
    """Compute every node again in float64 from the values that a runtime gave it.

    file: ONNX file. inputs, case: what the runtime computed on.
    folder, values: the folder and the files of ``NodesCaptured``.
    """

    file: str
    inputs: str
    case: int
    folder: str
    values: dict[str, str]
    seed: int


@dataclass(frozen=True)
class ConstantsCompared(Reply):
    """sentences: one about each constant that differs."""

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class CompareConstants(Request[ConstantsCompared]):
    """Compare the constants of an ONNX file with those of the same name in another one, the reference."""

    file: str
    reference: str


@dataclass(frozen=True)
class WeightsCompared(Reply):
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
