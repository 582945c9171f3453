"""ONNX graphs as decoders, whose cache is the tensors that they return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array
from xverify.framework.decoding import Decoder, DecoderOffers, GraphCall, LayerStep
from xverify.frameworks.onnx.decoder_graph import DecoderGraph

if TYPE_CHECKING:
    from xverify.frameworks.onnx.base import OnExport

# Computes a graph. It takes the inputs by name and the names of outputs, and returns these outputs.
Call = Callable[[Mapping[str, Array], Sequence[str]], Sequence[Array]]


def offers_of(graph: DecoderGraph) -> DecoderOffers:
    """What a graph takes. Raises Unsupported where it takes neither a cache nor a mask."""
    title = "the graph"  # in messages
    if graph.past:
        return DecoderOffers(title, graph.past[0].given, graph.uses, graph.mask, graph.positions)
    lacks = f"{title} takes {', '.join(graph.dtypes)}, and returns {graph.output}: it has no cache, such as past.0 and present.0"
    if not graph.mask:
        raise Unsupported(lacks)
    return DecoderOffers(title, "", "", graph.mask, graph.positions, lacks=lacks)


class OnnxDecoder(Decoder):
    """A graph as a decoder. A cache is a dictionary: input -> value.

    framework: what computes the graph. model: the ModelProto. graph: what it takes.
    """

    shows: ClassVar[str] = "node"

    def __init__(self, framework: OnExport, model: Any, graph: DecoderGraph) -> None:
        self.framework, self.model, self.graph = framework, model, graph
        self.offers = offers_of(graph)
        self.run = framework.opened(model, 0)
        self.watching: tuple[int, list[LayerStep]] | None = None
        self.strange = ""  # what is strange about the shapes of the last cache

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        feed = self.graph.feed(tokens, cache, positions, mask, more)
        if self.watching is not None:
            self._watch(feed, *self.watching)
        logits, *returned = self.run(feed, self.graph.returned)
        self.returns = logits.dtype
        if not keep or not self.graph.past:
            return logits, None
        rows, count = tokens.shape
        kept = self.graph.kept(cache, returned)
        self.strange, unusable = self.graph.misshaped(kept, rows, self.graph.length(cache) + count)
        if unusable:
            raise Failed(self.strange)
        return logits, kept

    def remark(self, cache: Any, sequences: int) -> str:
        narrow = {str(each.dtype) for each in self.graph.past if np.dtype(each.dtype) != self.returns}
        return (
            f"the cache holds {', '.join(sorted(narrow))}, and the graph returns {self.returns}"
            if narrow
            else self.strange
        )

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        return [array.shape for array in cache.values()]

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        found = dict(cache)
        for each in self.graph.past:
            if each.grows:
                array = cache[each.given]
                found[each.given] = np.take(array, range(each.length(array) - tokens), each.places)
        return found

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        return {**cache, **{each.given: np.take(cache[each.given], order, each.rows) for each in self.graph.past}}

    @contextmanager
    def threads(self, number: int) -> Iterator[None]:
        before, self.run = self.run, self.framework.opened(self.model, number)
        try:
            yield
        finally:
            self.run = before

    @contextmanager
    def watched(self, row: int) -> Iterator[list[LayerStep]]:
        found: list[LayerStep] = []
        self.watching = row, found
        try:
            yield found
        finally:
            self.watching = None

    def _watch(self, feed: Mapping[str, Array], row: int, into: list[LayerStep]) -> None:
        """Compute the values of all nodes in a call, without fused operators."""
        nodes = {
            name: node for node in self.model.graph.node if node.op_type != "Constant" for name in node.output if name
        }
        values = dict(zip(nodes, self.framework.expose(self.model, feed, list(nodes)).values()))
        for name, node in nodes.items():
            into += self._steps(node.name or node.output[0], {name: values[name]}, feed, row)

    def _steps(
        self, node: str, values: Mapping[str, Array], feed: Mapping[str, Array], row: int
    ) -> Iterator[LayerStep]:
        rows, tokens = feed[self.graph.tokens].shape
        for array in values.values():
            found = of_row(array, rows, tokens, row)
            if found is not None:
                yield LayerStep(node, None, found)

    def graph_call(self, tokens: Array, more: Sequence[Array]) -> GraphCall | None:
        feed = self.graph.feed(tokens, more=more)
        return GraphCall(self.model, self.framework.data, feed, lambda node, values: self._steps(node, values, feed, 0))


def of_row(value: Any, rows: int, tokens: int, row: int) -> Array | None:
    """The values of one sequence, (tokens, ...) float64; None of a value that has no clear axes of sequences and tokens."""
    array = np.asarray(value)
    if array.dtype.kind != "f" or array.ndim not in (3, 4) or array.shape[0] != rows:
        return None
    axes = [axis for axis in range(1, array.ndim - 1) if array.shape[axis] == tokens]
    if len(axes) != 1:
        return None
    return np.moveaxis(array[row], axes[0] - 1, 0).astype(np.float64)
