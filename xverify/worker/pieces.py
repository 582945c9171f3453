"""The work on a piece of an ONNX graph: its nodes are cut out, and the exact answer is computed."""

from __future__ import annotations

from collections import ChainMap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Failed
from ..messages.graph import NodesCaptured
from ..messages.pieces import ComputeValues, CutPiece, PieceCut, ReadNodes
from ..weights import npz
from .graph import Files, GraphWork, cases_of
from .handlers import Group

if TYPE_CHECKING:  # only the worker of torch can import these modules
    from onnx import ModelProto


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
        (folder / "model.onnx").write_bytes(piece.model.SerializeToString())
        npz.save_file(piece.inputs, folder / "inputs.npz")
        arrays = {f"{kind}/{name}": getattr(each, kind) for name, each in found.items() for kind in vars(each)}
        npz.save_file(arrays, folder / "expected.npz")
        places = tuple(place for place in request.places if graph.nodes[place] in piece.chosen)
        versions = ", ".join(f"{each.domain or 'ai.onnx'} {each.version}" for each in piece.model.opset_import)
        return PieceCut(places, tuple(map(describe, piece.nodes)), versions, piece.model.ir_version)

    def _head(self, file: str) -> ModelProto:
        """The model of a file without nodes and constants, read once."""
        import onnx

        from ..replay.graph.judge.pieces import header

        if file not in self.heads:
            self.heads[file] = header(onnx.load(file, load_external_data=False))
        return self.heads[file]
