"""The work on a piece of an ONNX graph: its nodes are cut out, and the exact answer is computed."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Failed
from ..messages.graph import NodesCaptured
from ..messages.pieces import ComputeValues, CutPair, CutPiece, PieceCut, ReadNodes
from ..weights import npz
from .graph import Files, GraphWork, cases_of
from .handlers import Group

if TYPE_CHECKING:  # only the worker of torch can import these modules
    from onnx import ModelProto

    from ..replay.graph.judge.pieces import Answer, Piece
    from ..replay.graph.model import Graph

RESULT = "the result"  # the output of each of two pieces that are compared


class PieceWork(Group):
    """Handlers of requests about a piece of a graph. graphs: reads graphs, each once."""

    def __init__(self, graphs: GraphWork) -> None:
        super().__init__(graphs.state)
        self.graphs = graphs
        self.heads: dict[str, ModelProto] = {}  # by file

    def read_nodes(self, request: ReadNodes) -> tuple[str, ...]:
        """Read the names of the nodes."""
        return tuple(node.name for node in self.graphs.graph_of(request.file, request.data).nodes)

    def compute_values(self, request: ComputeValues) -> NodesCaptured:
        """Compute one case in float64, and write the value of every node."""
        from ..replay.graph.evaluation import ERRORS
        from ..replay.graph.judge.pieces import visit_values

        files: dict[str, str] = {}

        def write(name: str, array: Any) -> None:
            files[name] = f"{len(files)}.npy"
            narrow = array.dtype.kind not in "fiubOSU"  # numpy would write the bytes of such a type without its name
            np.save(Path(request.folder, files[name]), array.astype(np.float32) if narrow else array)

        graph = self.graphs.graph_of(request.file, request.data)
        try:
            visit_values(graph, list(cases_of(request.inputs))[request.case], write)
        except ERRORS as error:
            raise Failed(f"the values of its nodes cannot be computed in float64: {error}") from error
        return NodesCaptured(files)

    def cut_piece(self, request: CutPiece) -> PieceCut:
        """Write some nodes as a file, with their inputs and the exact answer."""
        from ..replay.graph.judge.pieces import answers, cut, describe

        graph, folder = self.graphs.graph_of(request.file, request.data), Path(request.folder)
        known = list(cases_of(request.inputs))[request.case]
        values = ChainMap[str, Any](known, Files(Path(request.values), request.files))  # type: ignore[arg-type]
        chosen = [graph.nodes[place] for place in request.places]
        piece = cut(graph, self._head(request.file), chosen, values, request.outputs)
        found = answers(piece, request.seed, request.approximated, request.rounds)
        _write(piece, folder / "model.onnx", folder / "inputs.npz")
        _write_answers(found, folder)
        places = tuple(place for place in request.places if graph.nodes[place] in piece.chosen)
        return PieceCut(places, tuple(map(describe, piece.nodes)), _versions(piece), piece.model.ir_version)

    def cut_pair(self, request: CutPair) -> PieceCut:
        """Write the first node whose value the reference does not have, and that of the reference in its place."""
        from ..replay.graph.explain.divergence import quantises, trace
        from ..replay.graph.explain.pair import first_pair
        from ..replay.graph.judge.pieces import answers, cut, describe, name_output

        sides, folder = (request.file, request.reference), Path(request.folder)
        graphs = [self.graphs.graph_of(each.file) for each in sides]
        given = [list(cases_of(each.inputs))[request.case] for each in sides]
        if any(map(quantises, graphs)):
            raise Failed("a quantised file computes other values than its reference everywhere")
        mine, theirs = (trace(graph, inputs) for graph, inputs in zip(graphs, given))
        pair = first_pair(mine, theirs, request.outputs)
        if pair is None:
            raise Failed("no single node of the reference stands in the place of the first one that differs")
        chosen = ((pair.own,), pair.reference)
        known = [
            _values(graph, inputs, {*more, *(name for node in nodes for name in (*node.uses, *node.outputs))})
            for graph, inputs, nodes, more in zip(graphs, given, chosen, ((), pair.inputs.values()))
        ]
        for name, other in pair.inputs.items():
            if name in known[0] and other in known[1]:
                known[0][name] = np.reshape(known[1][other], known[0][name].shape).astype(known[0][name].dtype)
        pieces = [
            cut(graph, self._head(side.file), nodes, values, nodes[-1].outputs[:1])
            for graph, side, nodes, values in zip(graphs, sides, chosen, known)
        ]
        for piece in pieces:
            name_output(piece, RESULT)
        _write(pieces[0], folder / "model.onnx", folder / "inputs.npz")
        _write(pieces[1], folder / "reference.onnx", folder / "reference-inputs.npz")
        _write_answers(answers(pieces[1], request.seed, (), request.rounds), folder)
        words = tuple(" and ".join(map(describe, nodes)) for nodes in chosen)
        return PieceCut((0,), words, _versions(pieces[0]), pieces[0].model.ir_version)

    def _head(self, file: str) -> ModelProto:
        """The model of a file without nodes and constants, read once."""
        import onnx

        from ..replay.graph.judge.pieces import header

        if file not in self.heads:
            self.heads[file] = header(onnx.load(file, load_external_data=False))
        return self.heads[file]


def _write(piece: Piece, model: Path, inputs: Path) -> None:
    """Write a piece and its inputs."""
    model.write_bytes(piece.model.SerializeToString())
    npz.save_file(piece.inputs, inputs)


def _write_answers(found: Mapping[str, Answer], folder: Path) -> None:
    """Write the exact answer of a piece."""
    arrays = {f"{kind}/{name}": getattr(each, kind) for name, each in found.items() for kind in vars(each)}
    npz.save_file(arrays, folder / "expected.npz")


def _versions(piece: Piece) -> str:
    """The operator sets of a piece in words."""
    return ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in piece.model.opset_import)


def _values(graph: Graph, inputs: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """The values of these names, and the inputs of the graph."""
    from ..replay.graph.judge.pieces import visit_values

    found = dict(inputs)
    visit_values(graph, inputs, lambda name, array: found.update({name: array} if name in names else {}))
    return found
