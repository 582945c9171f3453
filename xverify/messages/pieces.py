"""Requests about a piece of an ONNX graph: some of its nodes as a file by themselves; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Request
from .graph import GraphSide, NodesCaptured


@dataclass(frozen=True)
class ReadNodes(Request[tuple[str, ...]]):
    """Read the names of the nodes of an ONNX file in the order of computation, without those that only hold a constant.

    data: the folder of the external data; "": that of the file.
    """

    file: str
    data: str = ""


@dataclass(frozen=True)
class ComputeValues(Request[NodesCaptured]):
    """Compute one case in float64, and write the value of every node in its own type into a folder.

    file, data: as in ``ReadNodes``. inputs: array file. case: index of the case.
    """

    file: str
    data: str
    inputs: str
    case: int
    folder: str


@dataclass(frozen=True)
class PieceCut:
    """A piece was written.

    places: the chosen nodes that are in it. nodes: each of its nodes in words, those of constants included.
    opset, ir_version: what the file declares.
    """

    places: tuple[int, ...]
    nodes: tuple[str, ...]
    opset: str
    ir_version: int


@dataclass(frozen=True)
class CutPiece(Request[PieceCut]):
    """Write some nodes of an ONNX file as a file by itself, with its inputs and the exact answer.

    The folder gets ``model.onnx``, ``inputs.npz`` and ``expected.npz``: for each output the exact values in float64
    (``exact/NAME``), rounded to its type (``rounded/NAME``), and how far a value may be away (``limit/NAME``).

    file, data: as in ``ReadNodes``. inputs, case: the inputs of the file, an array file. values, files: the folder and the files of
        ``NodesCaptured``.
    places: the nodes, by their places in the order of ``ReadNodes``. outputs: only these outputs and what they need; empty: all.
    approximated: names of nodes that the runtime approximates. rounds: evaluations from which the limits are made.
    """

    file: str
    data: str
    inputs: str
    case: int
    values: str
    files: dict[str, str]
    places: tuple[int, ...]
    folder: str
    seed: int
    outputs: tuple[str, ...] = ()
    approximated: tuple[str, ...] = ()
    rounds: int = 1


@dataclass(frozen=True)
class CutPair(Request[PieceCut]):
    """Write the first node of a file whose value its reference does not have, and the node of the reference in its place.

    The folder gets ``model.onnx`` and ``inputs.npz``, ``reference.onnx`` and ``reference-inputs.npz``, and ``expected.npz`` with
    the exact answer of the reference. Both are given the values of the reference.

    file, reference: ONNX files. case: index of the case. outputs: name of an output of the reference -> its name in the file.
    """

    file: GraphSide
    reference: GraphSide
    case: int
    outputs: dict[str, str]
    folder: str
    seed: int
    rounds: int
