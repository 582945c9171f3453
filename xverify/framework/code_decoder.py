"""Models of any framework as decoders, whose code takes the cache that it returned before."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import Failed, Unsupported
from .capture import OpenCall, Recorder, recording
from .decoding import Decoder, DecoderOffers, LayerStep
from .runner import Array
from .structures import is_tensor, map_leaves, parts

if TYPE_CHECKING:
    from .adapter import Framework

CACHES = ("past_key_values", "cache_params", "cache", "past", "kv_cache", "past_kv")
USE, MASKS, POSITIONS = ("use_cache",), ("attention_mask", "mask"), ("position_ids", "positions")
WRITTEN = "tokens, cache=None, use_cache=False, mask=None, positions=None"
FLOATING = re.compile(r"\bb?float\d+")  # in the name of a dtype, of any framework


class CodeDecoder(Decoder):
    """A model as a decoder. inputs, output: see ``Decodes.decoder``.

    A cache is what the code returns: a tensor, nested tuples, lists and mappings of tensors, or an object.
    """

    def __init__(self, framework: Framework, model: Any, inputs: Mapping[str, str | None], output: str) -> None:
        self.framework, self.model, self.output = framework, model, output
        self.layouts = list(inputs.values())
        self.offers = self._offers()
        self.dtype = "float32"  # of the first output of the last call

    def _offers(self) -> DecoderOffers:
        """What the code of the model takes. Raises Unsupported where it takes neither a cache nor a mask."""
        code = self.framework.decoder_code(self.model)
        names = list(inspect.signature(code).parameters)
        function = f"{type(self.model).__name__}.{code.__name__}"

        def first(known: Sequence[str]) -> str:
            return next((name for name in known if name in names), "")

        missing = [what for what, known in (("cache", CACHES), ("use_cache", USE)) if not first(known)]
        if not missing:
            return DecoderOffers(function, first(CACHES), first(USE), first(MASKS), first(POSITIONS))
        lacks = (
            f"{function} takes {', '.join(names)}, and no {missing[0]}: a decoder has the parameters {WRITTEN}, and returns "
            "(logits, cache) when use_cache is true"
        )
        if not first(MASKS):
            raise Unsupported(lacks)
        return DecoderOffers(function, "", "", first(MASKS), first(POSITIONS), lacks=lacks)

    def call(
        self,
        tokens: Array,
        cache: Any,
        positions: Array | None = None,
        mask: Array | None = None,
        keep: bool = True,
        more: Sequence[Array] = (),
    ) -> tuple[Array, Any]:
        offers, given = self.offers, dict[str, Any]()
        if offers.use_cache:
            given[offers.use_cache] = keep
        if cache is not None:
            given[offers.cache] = cache
        if offers.unplaced and mask is not None:
            mask = mask[:, -tokens.shape[1] :]  # a state holds no tokens that could be masked later
        for name, array in ((offers.positions, positions), (offers.mask, mask)):
            if name and array is not None:
                given[name] = self._native(array)
        inputs = [self.framework.to_native(*each) for each in zip((tokens, *more), self.layouts)]
        returned = self.framework.decoder_call(self.model, inputs, given)
        logits = self.logits(returned)
        self.dtype = _floating(logits)
        return self.framework.to_numpy(logits, None), self.cache(returned) if keep else None

    def _native(self, array: Array) -> Any:
        return self.framework.to_native(array, None)

    def logits(self, returned: Any) -> Any:
        """The first output among what a call returned."""
        found = returned if is_tensor(returned) else dict(parts(returned) or []).get(self.output)
        if found is None:
            inner = parts(returned)
            found = inner[0][1] if inner else None
        if not is_tensor(found):
            raise Failed(f"{self.offers.function} returns a {type(returned).__name__}, whose first part is no tensor")
        return found

    def cache(self, returned: Any) -> Any:
        """The cache among what a call returned."""
        found = getattr(returned, self.offers.cache, None)
        if found is None and isinstance(returned, dict):
            found = returned.get(self.offers.cache)
        if found is None and isinstance(returned, tuple) and len(returned) == 2:
            found = returned[1]
        if found is None:
            raise Failed(
                f"{self.offers.function} returns a {type(returned).__name__} without a cache at {self.offers.use_cache}=True: "
                f"return (logits, cache), or a mapping with {self.output!r} and {self.offers.cache!r}"
            )
        return found

    def tensors(self, cache: Any) -> list[Any]:
        """The tensors of a cache, also of one that is an object, or that holds objects."""
        if is_tensor(cache):
            return [cache]
        inner = parts(cache)
        if inner is None and not isinstance(cache, type) and not self._is_module(cache):
            inner = list(getattr(cache, "__dict__", {}).items())
        return [tensor for _, value in inner or () for tensor in self.tensors(value)]

    def _is_module(self, value: Any) -> bool:
        """Whether a value is a model or a layer, whose tensors belong to no cache."""
        return self.framework.is_module(value)

    def _shapes(self, cache: Any) -> list[tuple[int, ...]]:
        return [tuple(each.shape) for each in self.tensors(cache)]

    def marked(self, cache: Any) -> list[tuple[int, ...]]:
        return self._shapes(cache)

    def taken_back(self, cache: Any, tokens: int, before: Sequence[tuple[int, ...]]) -> Any:
        if hasattr(cache, "crop"):
            return _changed(cache, cache.crop(-tokens))
        axes = [_grown(old, tuple(new.shape), tokens) for old, new in zip(before, self.tensors(cache))]
        if parts(cache) is None or not axes or None in axes:
            raise Unsupported("the cache has tensors without an axis that grows with the tokens; give it crop(-tokens)")
        left = iter(axes)

        def shorter(value: Any) -> Any:
            axis = next(left)
            assert axis is not None
            return self.framework.taken(value, range(value.shape[axis] - tokens), axis)

        return map_leaves(cache, lambda value: shorter(value) if is_tensor(value) else value)

    def reordered(self, cache: Any, order: Sequence[int]) -> Any:
        if hasattr(cache, "reorder_cache"):
            return _changed(cache, cache.reorder_cache(self._native(np.array(order))))
        if parts(cache) is None or any(shape[:1] != (len(order),) for shape in self._shapes(cache)):
            raise Unsupported(
                "the first axis of its tensors is not that of the sequences; give it reorder_cache(order)"
            )
        return map_leaves(cache, lambda value: self.framework.taken(value, order, 0) if is_tensor(value) else value)

    def remark(self, cache: Any, sequences: int) -> str:
        tensors = self.tensors(cache)
        narrow = sorted({_floating(each) for each in tensors} - {"", self.dtype})
        if narrow:
            return f"the cache holds {', '.join(narrow)}, and the model returns {self.dtype}"
        other = [each for each in tensors if len(each.shape) > 2 and sequences not in tuple(each.shape)[:2]]
        return f"the cache holds {other[0].shape[0]} rows for {sequences} sequences" if other else ""

    def threads(self, number: int) -> AbstractContextManager[None]:
        return self.framework.other_threads(number)

    @contextmanager
    def watched(self, row: int) -> Iterator[list[LayerStep]]:
        steps, layers = Steps(self.framework, row), self.framework.layers(self.model)
        outer = {name[:end] for name in layers for end, character in enumerate(name) if character == "."}
        chosen = {name: objects for name, objects in layers.items() if name not in outer}
        with recording(chosen, self.framework.layer_method, steps, self.framework.joined_outputs):
            yield steps.found


class Steps(Recorder):
    """Keeps what the layers of one call of a decoder take and return, of one sequence."""

    def __init__(self, framework: Framework, row: int) -> None:
        super().__init__(Path(), lambda value: framework.to_numpy(value, None) if is_tensor(value) else None)
        self.row = row
        self.found: list[LayerStep] = []
        self.given: dict[int, Array | None] = {}

    def begin(self, name: str, inputs: Any) -> OpenCall:
        arguments, _ = inputs
        record = OpenCall(name, 0, [])
        self.given[id(record)] = self._of_row(arguments[0]) if arguments else None
        return record

    def end(self, record: OpenCall, outputs: Any) -> None:
        given, returned = self.given.pop(id(record)), self._of_row(outputs)
        if returned is not None:
            self.found.append(LayerStep(record.name, given, returned))

    def _of_row(self, value: Any) -> Array | None:
        """The values of the sequence, (tokens, ...) float64; None of a value that has no axes of sequences, tokens and features."""
        if not is_tensor(value) or len(value.shape) != 3 or not _floating(value):
            return None
        array = self.to_numpy(value)
        return None if array is None else array[min(self.row, len(array) - 1)].astype(np.float64)


def _changed(cache: Any, returned: Any) -> Any:
    """A cache after a method of it: what the method returned, or the cache itself where it was changed in place."""
    return cache if returned is None else returned


def _floating(tensor: Any) -> str:
    """The name of a tensor's dtype, such as "float32"; "" where it is no floating-point type."""
    found = FLOATING.search(str(tensor.dtype))
    return found[0] if found else ""


def _grown(before: tuple[int, ...], after: tuple[int, ...], tokens: int) -> int | None:
    """The only axis that has grown by this number; None where there is none."""
    axes = [axis for axis, (old, new) in enumerate(zip(before, after)) if new != old]
    return axes[0] if len(axes) == 1 and after[axes[0]] - before[axes[0]] == tokens else None
