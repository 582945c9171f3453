"""Requests about ONNX graphs, to the runtime of one and to the worker that evaluates it in float64; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

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
    """

    file: str
    inputs: str
    path: str
    seed: int
    enough: float


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
class DivergenceFound(Reply):
    """sentences: where the file begins to compute something else; none where that is not found."""

    sentences: tuple[str, ...]


@dataclass(frozen=True)
class FindDivergence(Request[DivergenceFound]):
    """Find the first node of an ONNX file whose value another ONNX file, the reference, does not have, both in float64.

    inputs, reference_inputs: the same input cases as an array file of each. case: index of the case.
    outputs: name of an output of the reference -> its name in the file.
    any_order: whether the axes of an image are turned. coarse: the relative difference that the precision of the file explains.
    """

    file: str
    inputs: str
    reference: str
    reference_inputs: str
    case: int
    outputs: dict[str, str]
    any_order: bool
    coarse: float
