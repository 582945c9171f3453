"""The work on ONNX graphs: the values of every node in a runtime, and the evaluation of a graph in float64."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Failed, NotInstalled, SubjectError
from ..framework.modelfile import ModelFile
from ..messages.graph import (
    CaptureNodes,
    CompareRoundedWeights,
    CompareWeights,
    DescribeGraph,
    EvaluateGraph,
    EvaluateRounding,
    FindDivergence,
    FindUnlike,
    GraphDescribed,
    GraphEvaluated,
    GraphSide,
    Hidden,
    LayersRanked,
    NodesCaptured,
    RankLayers,
    ReplayGraph,
    RoundedWeightsCompared,
    RoundingEvaluated,
    TakeBranches,
    WeightsCompared,
    WriteGraph,
)
from ..verdict.findings import ReplayReport
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .handlers import Group
from .state import State

if TYPE_CHECKING:  # only the worker of torch can import these modules
    from ..replay.graph.explain.divergence import Trace
    from ..replay.graph.judge.noise import OutputNoise
    from ..replay.graph.model import Graph
    from ..replay.graph.values import Value

WITNESS = 0.5  # seconds that it may take to draw each weight anew by itself
TEXTS = "OSU"  # kinds of numpy's dtypes that are no numbers
TIES = 1000  # positions of an output at which equal values are told
LEAST_CASES = 2  # a single case could not show that an output is constant


class GraphWork(Group):
    """Handlers of requests about an ONNX graph."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.graphs: dict[str, Graph] = {}  # by file

    # -- in the worker of a runtime -----------------------------------------------------------------------------------

    def capture(self, request: CaptureNodes) -> NodesCaptured:
        """Compute one case node by node, and write the value of every node."""
        graph = Path(request.graph) if request.graph else None
        folder = Path(request.folder)
        return NodesCaptured(
            self._with_nodes(
                request.inputs, request.case, lambda form, model, inputs: form.node_values(model, inputs, folder, graph)
            )
        )

    def write(self, request: WriteGraph) -> dict[str, str]:
        """Write the graph of the file as an ONNX file of the same meaning."""
        path = Path(request.path)
        return self._with_nodes(request.inputs, 0, lambda form, model, inputs: form.write_onnx(model, inputs, path))

    def _with_nodes(
        self, file: str, case: int, work: Callable[[ModelFile, Any, dict[str, Any]], dict[str, str]]
    ) -> dict[str, str]:
        """What a function of the format, the opened model and the native inputs of one case returns. file: of the input cases."""
        form, model = self.state.runner, self.state.model
        if not isinstance(form, ModelFile):
            raise Failed(f"{form.name} does not open model files")
        arrays = npz.OnDisk(Path(file))
        inputs = {
            tensor.name: form.to_input(tensor.name, arrays[case_key(case, tensor.name)], None)
            for tensor in form.signature(model).inputs
        }
        with form.inference():
            try:
                return work(form, model, inputs)
            except (SubjectError, MemoryError):
                raise
            except ModuleNotFoundError as error:
                raise NotInstalled(f"{error.name} is not installed, which reads the nodes of a file") from None
            except Exception as error:
                kind, cause = form.cause(error)
                raise kind(f"its nodes cannot be computed one by one: {cause}") from error

    # -- in the worker that evaluates graphs --------------------------------------------------------------------------

    def describe(self, request: DescribeGraph) -> GraphDescribed:
        """Read what the graph tells about itself."""
        from ..replay.graph.describe import precision, random, ranges, vocabulary, widths
        from ..replay.graph.wholes import wholes

        graph = self.graph_of(request.file)
        drawn = tuple(random(graph))
        return GraphDescribed(
            vocabulary=vocabulary(graph),
            nodes=len(graph.nodes),
            precision=precision(graph),
            random=drawn,
            wholes=wholes(graph),
            declared=graph.declared,
            taken=graph.taken,
            ranges=ranges(graph),
            widths=widths(graph),
        )

    def evaluate(self, request: EvaluateGraph) -> GraphEvaluated:
        """Compute the outputs of every case in float64, with the noise of their values."""
        from ..replay.graph.judge.itemwise import noise_of_one_item
        from ..replay.graph.judge.noise import noise
        from ..replay.graph.judge.overflow import Overflow
        from ..replay.graph.judge.witness import hidden, unmoved
        from ..replay.graph.reach import Reach

        graph, itemwise = self.graph_of(request.file), not request.cases and not request.state
        reach = Reach(graph) if request.witness else None
        results: dict[str, Array] = {}
        noises: dict[str, Array] = {}
        undecided, overflows = dict[str, str](), dict[str, str]()
        ties = dict[str, tuple[tuple[int, int, int], ...]]()
        fed: dict[str, Value] = {}
        done, seconds, stays, single = 0, 0.0, False, None
        for case, inputs in self._affordable(request.inputs, request.enough):
            if request.cases and case not in request.cases:
                continue
            begun, done = self.state.clock(), case + 1
            how = request.seed, request.samples
            overflow = Overflow(graph)
            computed = (
                noise_of_one_item(graph, inputs, *how, request.approximated, overflow.visit, reach)
                if itemwise
                else None
            )
            if computed is None:
                itemwise, overflow = False, Overflow(graph)
                computed = noise(
                    graph, inputs, *how, approximated=request.approximated, fed=fed, watch=overflow.visit, reach=reach
                )
            overflows |= {str(case): overflow.says} if overflow.says else {}
            returned = {name: computed[output].value for name, output in request.state.items()}
            fed = {name: value for name, value in returned.items() if value is not None}
            if request.witness and case == 0:
                asked = self.state.clock()
                stays = unmoved(graph, inputs, computed, request.seed)
                most = WITNESS / max(self.state.clock() - asked, 1e-6)
                single = None if stays else hidden(graph, inputs, computed, request.seed, most)
            for name, found in computed.items():
                key = case_key(case, name)
                undecided |= {key: found.undecided} if found.undecided else {}
                tied = _tied(found)
                ties |= {key: tied} if tied else {}
                if np.asarray(found.exact).dtype.kind not in TEXTS:
                    results[key] = np.asarray(found.exact)
                    noises[key] = np.asarray(found.noise)
            seconds = self.state.clock() - begun
        npz.save_file(results, Path(request.path))
        npz.save_file(noises, Path(request.noise))
        known, unreached = None if single is None else Hidden(*single), reach.says() if reach is not None else ()
        return GraphEvaluated(done, seconds, stays, known, undecided, overflows, ties, unreached)

    def _affordable(self, file: str, enough: float) -> Iterator[tuple[int, dict[str, Array]]]:
        """The input cases with their numbers: LEAST_CASES, and others that the caller is expected to end within so many seconds.

        A case takes as long as the one before. The first one does not count: it also loads code, which takes longer than a small
        file on a machine that is busy.
        """
        spent = last = 0.0
        for case, inputs in enumerate(cases_of(file)):
            if case >= LEAST_CASES and spent + last > enough:
                return
            begun = self.state.clock()
            yield case, inputs
            last = self.state.clock() - begun if case else 0.0
            spent += last

    def replay(self, request: ReplayGraph) -> ReplayReport:
        """Compute every node again in float64 from the values that a runtime gave it."""
        from ..replay.graph.judge.replay import replay

        graph, folder = self.graph_of(request.file, request.data), Path(request.folder)
        inputs, values = list(cases_of(request.inputs))[request.case], Files(folder, request.values)
        report = replay(graph, inputs, values, request.seed, channels_last=request.channels_last, steps=request.steps)
        compared = Counter(finding.layer for finding in report.findings)
        return ReplayReport(
            findings=report.findings,
            compared=dict.fromkeys(compared, 1),
            missing=dict.fromkeys((*report.missing, *report.unsupported), 1),
        )

    def find_divergence(self, request: FindDivergence) -> tuple[str, ...]:
        """Find where a file begins to compute something else than a reference."""
        from ..replay.graph.explain.divergence import divergences, quantises
        from ..replay.graph.explain.first_layer import first_layer

        file, reference, case = request.file, request.reference, request.case
        if file.traced is None and reference.traced is None and quantises(self.graph_of(file.file)):
            case = 0  # a quantisation is calibrated for values of the usual size
        mine, theirs = (self._trace(side, case, request.any_order) for side in (file, reference))
        more = request.any_order, request.coarse, request.general
        if reference.layers:
            return tuple(first_layer(mine, theirs, request.outputs, *more))
        return tuple(divergences(mine, theirs, request.outputs, *more))

    def _trace(self, side: GraphSide, case: int, turn: bool) -> Trace:
        """The values of a file. turn: see ``sketch``."""
        from ..replay.graph.explain.divergence import trace
        from ..replay.graph.explain.traced import of_values

        if side.traced is not None:
            return of_values(side.traced.graph, Files(Path(side.folder), side.traced.files), turn)
        return trace(self.graph_of(side.file), list(cases_of(side.inputs))[case], turn)

    def evaluate_rounding(self, request: EvaluateRounding) -> RoundingEvaluated:
        """Compute how much rounding to a lower precision changes the outputs."""
        from ..replay.graph.judge.rounding import SAMPLES, SPARE, Ranges, Units, rounding_noise
        from ..replay.graph.judge.shared import shared_constants

        spare = math.inf if request.coarse else SPARE
        graph, ranges, units = self.graph_of(request.file), Ranges(), Units(request.weights, request.results, spare)
        shared = shared_constants(graph, self.graph_of(request.reference)) if request.reference else {}
        weights, results = dict[str, Array](), dict[str, Array]()
        clipped = dict[str, float]()
        done = 0
        for case, inputs in self._affordable(request.inputs, request.enough):
            done = case + 1
            for name, found in rounding_noise(graph, inputs, units, ranges, request.seed, SAMPLES, shared).items():
                weights[case_key(case, name)], results[case_key(case, name)] = found.weights, found.results
            clipped.update({case_key(case, node): share for node, share in ranges.clipped.items() if share})
        npz.save_file(weights, Path(request.by_weights))
        npz.save_file(results, Path(request.by_all))
        return RoundingEvaluated(clipped, done)

    def rank_layers(self, request: RankLayers) -> LayersRanked:
        """Compute what the quantisation of each layer costs."""
        from ..replay.graph.explain.ranking import rank

        begun = self.state.clock()
        inputs, reference_inputs = (
            list(cases_of(path))[request.case] for path in (request.inputs, request.reference_inputs)
        )
        graph, reference = self.graph_of(request.file), self.graph_of(request.reference)
        found = rank(graph, reference, inputs, reference_inputs, request.enough, self.state.clock)
        return LayersRanked(found.layers, found.known, found.stopped, self.state.clock() - begun)

    def compare_rounded_weights(self, request: CompareRoundedWeights) -> RoundedWeightsCompared:
        """Compare the weights of a file in lower precision with the reference's, value by value."""
        from ..replay.graph.explain.constants import beyond_rounding
        from ..replay.graph.explain.ranges import wrong_ranges
        from ..replay.graph.explain.weight_steps import beyond_steps

        graph, reference = self.graph_of(request.file), self.graph_of(request.reference)
        cases = list(islice(cases_of(request.inputs), LEAST_CASES)) if request.inputs else []
        steps = beyond_steps(graph, reference, cases)
        return RoundedWeightsCompared(
            tuple(beyond_rounding(graph, reference)),
            (*steps.wrong, *wrong_ranges(graph, reference)),
            tuple(steps.notes()),
        )

    def compare_weights(self, request: CompareWeights) -> WeightsCompared:
        """Compare the constants of a file with weights, by name and by value."""
        from ..replay.graph.explain.constants import differences_by_name, found_by_value, with_norms

        constants, weights = self.graph_of(request.file).constants, npz.load_file(Path(request.weights))
        named = sum(name in constants and constants[name].shape == array.shape for name, array in weights.items())
        folded, used = with_norms(constants, weights)
        others = {name: array for name, array in constants.items() if name not in folded}
        sentences = tuple(differences_by_name(others, weights))
        found = found_by_value({name: array for name, array in weights.items() if name not in used}, constants)
        return WeightsCompared(sentences, len(weights), named, found + len(used))

    def find_unlike(self, request: FindUnlike) -> tuple[str, ...]:
        """Find the constants of a file that are the reference's but for some values."""
        from ..replay.graph.explain.constants import Placed
        from ..weights.unlike import unlike

        mine = Placed.of(self.graph_of(request.file))
        if request.reference.endswith(".npz"):
            return tuple(unlike(mine.arrays, npz.load_file(Path(request.reference))))
        theirs = Placed.of(self.graph_of(request.reference))
        return tuple(unlike(mine.arrays, theirs.arrays, mine.same_places(theirs)))

    def take_branches(self, request: TakeBranches) -> bool:
        """Write the file with the branches that one case takes."""
        import onnx

        from ..replay.graph.branches import without_branches

        if not any(node.op == "If" for node in self.graph_of(request.file).nodes):
            return False
        model = onnx.load(request.file, load_external_data=False)
        inputs = list(cases_of(request.inputs))[request.case]
        taken = without_branches(model, str(Path(request.file).parent), inputs)
        if taken is not None:
            Path(request.path).write_bytes(taken.SerializeToString())
        return taken is not None

    def graph_of(self, file: str, data: str = "") -> Graph:
        """The graph of a file, read once. data: the folder of its external data; "": that of the file."""
        if file not in self.graphs:
            try:
                import onnx
            except ModuleNotFoundError:
                raise NotInstalled("onnx is not installed, which reads ONNX files: pip install onnx") from None
            from ..formats._onnx_parts import load
            from ..replay.graph.model import Graph

            model, values = load(onnx, Path(file))
            self.graphs[file] = Graph(model, data or str(Path(file).parent), values)
        return self.graphs[file]


class Files(Mapping[str, Any]):
    """The arrays of a folder, each read when it is looked up."""

    def __init__(self, folder: Path, files: Mapping[str, str]) -> None:
        self.folder, self.files = folder, files

    def __getitem__(self, name: str) -> Any:
        return np.load(self.folder / self.files[name], allow_pickle=False)

    def __contains__(self, name: object) -> bool:
        return name in self.files  # that of a Mapping would read the file

    def __iter__(self) -> Iterator[str]:
        return iter(self.files)

    def __len__(self) -> int:
        return len(self.files)


def _tied(found: OutputNoise) -> tuple[tuple[int, int, int], ...]:
    """See ``GraphEvaluated.ties``; of one output, the first TIES of them."""
    if found.ties is None:
        return ()
    first, last = (each.reshape(-1) for each in found.ties)
    places = np.flatnonzero(np.isinf(found.noise).reshape(-1) & (first != last))[:TIES]
    return tuple((int(place), int(first[place]), int(last[place])) for place in places)


def cases_of(path: str) -> Iterator[dict[str, Array]]:
    """The inputs of every case: name -> array."""
    arrays = npz.OnDisk(Path(path))
    count = 1 + max((int(key.partition("/")[0]) for key in arrays), default=0)  # a model without inputs has one case
    for case in range(count):
        begin = f"{case}/"
        yield {key.removeprefix(begin): np.array(arrays[key]) for key in arrays if key.startswith(begin)}
