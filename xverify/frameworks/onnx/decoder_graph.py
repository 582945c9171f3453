"""ONNX graphs of decoders: which inputs and outputs are the tokens, the mask, the positions and the cache.

A tensor of the cache is an input whose name has ``past`` or ``cache``, and the output whose name is otherwise the same: ``past.0``
and ``present.0``, ``past_key_values.0.key`` and ``present.0.key``, ``k_cache_in`` and ``k_cache_out``. The spec may name others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array
from xverify.framework.decodernames import MASKS, OF_CACHE, OF_TOKENS, POSITIONS, USES, words

# Words by which the names of an input and of its output may differ.
FREE = OF_CACHE | {"present", "new", "updated", "in", "out", "input", "output"}
OF_STATES = {"encoder", "cross"}  # words of the keys and values of an encoder's states, which do not grow


@dataclass(frozen=True)
class Past:
    """A tensor of the cache.

    given, returned: the names of the input and of the output. shape: of the input; None where it is open. dtype: of both.
    rows, places: its axes of sequences and of tokens. grows: whether every token adds to it.
    """

    given: str
    returned: str
    shape: tuple[int | None, ...]
    dtype: Any
    rows: int
    places: int
    grows: bool

    def empty(self, rows: int) -> Array:
        """The tensor before any token."""
        sizes = {self.rows: rows, self.places: 0}
        return np.zeros([sizes.get(axis, size or 0) for axis, size in enumerate(self.shape)], self.dtype)

    def length(self, array: Array) -> int:
        """The number of tokens that a value of it holds."""
        return int(array.shape[self.places])


@dataclass(frozen=True)
class DecoderGraph:
    """What a graph takes and returns.

    more: further inputs, in the order of the spec. mask, positions, uses: "" where the graph takes none.
    uses: the input that tells whether a cache is given. dtypes: input -> dtype. output: the first one.
    """

    tokens: str
    more: tuple[str, ...]
    mask: str
    positions: str
    uses: str
    past: tuple[Past, ...]
    output: str
    dtypes: Mapping[str, Any]

    @property
    def returned(self) -> list[str]:
        """The names of the outputs of one call: the first one, and those of the cache."""
        return [self.output, *(each.returned for each in self.past)]

    def length(self, cache: Mapping[str, Array] | None) -> int:
        """The number of tokens that a cache holds."""
        return next((each.length(cache[each.given]) for each in self.past if cache is not None and each.grows), 0)

    def feed(
        self,
        tokens: Array,
        cache: Mapping[str, Array] | None = None,
        positions: Array | None = None,
        mask: Array | None = None,
        more: Sequence[Array] = (),
    ) -> dict[str, Array]:
        """The inputs of one call by name. See ``Decoder.call`` for the arguments; cache: input -> value."""
        rows, count = tokens.shape
        before = self.length(cache)
        ones = np.ones((rows, before + count), np.int64)
        places = np.arange(before, before + count)[None].repeat(rows, 0)
        found = {self.tokens: tokens, **dict(zip(self.more, more))}
        if self.mask:
            found[self.mask] = ones if mask is None else mask
        if self.positions:
            found[self.positions] = places if positions is None else positions
        if self.uses:
            found[self.uses] = np.array([cache is not None])
        found |= {each.given: each.empty(rows) if cache is None else cache[each.given] for each in self.past}
        return {name: np.ascontiguousarray(array, self.dtypes[name]) for name, array in found.items()}

    def kept(self, cache: Mapping[str, Array] | None, returned: Sequence[Array]) -> dict[str, Array]:
        """The cache after a call. returned: the outputs of the cache. What a graph returns of an encoder may be empty later."""
        found = {each.given: array for each, array in zip(self.past, returned)}
        stay = {each.given for each in self.past if not each.grows and cache is not None}
        return {name: cache[name] if cache is not None and name in stay else array for name, array in found.items()}

    def misshaped(self, cache: Mapping[str, Array], rows: int, tokens: int) -> tuple[str, bool]:
        """(a sentence on a tensor of a cache that does not hold so many sequences and tokens; whether no call can be given it).

        One that holds fewer tokens may have a window. ("", False) where all hold them.
        """
        for each in self.past:
            array = cache[each.given]
            rows_differ = array.ndim != len(each.shape) or array.shape[each.rows] != rows
            more = 0 if rows_differ or not each.grows else each.length(array) - tokens
            if rows_differ or more:
                says = f"after {tokens} tokens of {rows} sequences, {each.returned} has shape {array.shape}"
                sizes = {each.rows: rows, each.places: tokens}
                needed = ", ".join(str(sizes.get(axis, size)) for axis, size in enumerate(each.shape))
                return f"{says}, and {each.given} needs ({needed})", rows_differ or more > 0
        return "", False


def decoder_graph(
    graph: Any, names: Sequence[str], dtype: Any, cache: Mapping[str, str] = MappingProxyType({})
) -> DecoderGraph:
    """What a graph takes. Raises Unsupported for inputs of no known meaning.

    graph: a GraphProto. names: the tokens and the further inputs, as the spec calls them. dtype: numpy's, of a type of elements.
    cache: input -> output of the tensors of the cache that the spec names.
    """
    weights = {each.name for each in graph.initializer}
    inputs = {each.name: each.type.tensor_type for each in graph.input if each.name not in weights}
    outputs = {each.name: each.type.tensor_type for each in graph.output}

    def first(known: Sequence[str]) -> str:
        return next((name for name in known if name in inputs and name not in (*names, *cache)), "")

    mask, positions, uses = first(MASKS), first(POSITIONS), first(USES)
    left = [name for name in inputs if name not in (*names, *cache)]
    pairs = {**cache, **dict(_pairs(left, [name for name in outputs if name not in cache.values()]))}
    left = [name for name in inputs if name not in {mask, positions, uses, *pairs, *names[1:]}]
    if len(left) != 1 or any(name not in inputs for name in names[1:]):
        raise Unsupported(
            f"the graph takes {', '.join(inputs)}: beside the tokens, a mask ({', '.join(MASKS)}), positions "
            f"({', '.join(POSITIONS)}) and the inputs of the spec ({', '.join(names)}), each must be a tensor of the cache with an "
            "output of the same name, such as past.0 and present.0; or name the pairs with cache={INPUT: OUTPUT} in the spec"
        )
    batch = _sizes(inputs[left[0]])[:1]
    past = tuple(_past(name, returned, inputs[name], batch, dtype) for name, returned in pairs.items())
    for each in past:
        returned = outputs[each.returned].elem_type
        if returned and dtype(returned) != each.dtype:
            raise Unsupported(
                f"the graph returns {each.returned} as {dtype(returned)}, and takes it as {each.dtype} at the next call, as "
                f"{each.given}: a tensor of the cache needs one type"
            )
    output = next((name for name in outputs if name not in pairs.values()), "")
    if not output:
        raise Failed(f"the graph returns {', '.join(outputs)}, and nothing beside its cache")
    dtypes = {name: dtype(tensor.elem_type) for name, tensor in inputs.items()}
    return DecoderGraph(left[0], tuple(names[1:]), mask, positions, uses, past, output, dtypes)


def _pairs(inputs: Sequence[str], outputs: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(input, output) of every tensor of the cache."""
    returned = {tuple(word for word in words(name) if word not in FREE): name for name in reversed(outputs)}
    for name in inputs:
        own = words(name)
        other = returned.get(tuple(word for word in own if word not in FREE))
        if OF_CACHE & set(own) and other is not None:
            yield name, other


def _sizes(tensor: Any) -> list[int | str]:
    return [each.dim_value if each.HasField("dim_value") else each.dim_param for each in tensor.shape.dim]


def _past(name: str, returned: str, tensor: Any, batch: Sequence[int | str], dtype: Any) -> Past:
    """A tensor of the cache. batch: what the graph calls the axis of sequences."""
    sizes = _sizes(tensor)
    opened = [axis for axis, size in enumerate(sizes) if isinstance(size, str)]
    rows = next((axis for axis in opened if sizes[axis] and sizes[axis] in batch), 0)
    places = [axis for axis in opened if axis != rows]
    if len(places) > 1:
        places = [axis for axis in places if OF_TOKENS.search(str(sizes[axis]))]
    if len(places) != 1 or len(opened) != 2 or rows not in opened:
        raise Unsupported(
            f"the input {name} of the graph has shape ({', '.join(str(size or '?') for size in sizes)}): a cache needs an open "
            "axis of sequences and an open axis of tokens, and fixed sizes of all others"
        )
    shape = tuple(size if isinstance(size, int) else None for size in sizes)
    grows = not OF_STATES & set(words(name))
    return Past(name, returned, shape, dtype(tensor.elem_type), rows, places[0], grows)
