"""Exports decoders of torch as ONNX graphs that take the tensors of a cache, and return those with the new tokens."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from xverify.errors import Unsupported
from xverify.float64.replaced import replaced
from xverify.framework.adapter import Framework, Names
from xverify.framework.decoding import MASK, PAST, POSITIONS, PRESENT
from xverify.framework.structures import is_tensor
from xverify.frameworks.torch.decoding import TorchDecoder
from xverify.frameworks.torch.export import export

ROWS = 2  # sequences of the example; a size of one would be taken for a fixed one
BATCH, TOKENS, BEFORE, TOTAL = "batch", "tokens", "past", "total"  # names of open axes


@dataclass(frozen=True)
class CacheAxes:
    """The axes of a tensor of a cache that grow with the sequences, and with the tokens; None where there is none."""

    rows: int | None
    places: int | None


def export_decoder(
    framework: Framework, model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool
) -> str:
    """Write a decoder as ONNX. Returns why the newer exporter made it; "" when the older one did.

    The graph takes the tokens and the further inputs, ``attention_mask`` and ``position_ids`` where the model takes them, and the
    tensors of the cache as ``past.0`` and so on. It returns the first output, and the tensors as ``present.0`` and so on.
    inputs, names, with_weights: see ``Reference.export_onnx``. Raises Unsupported for a model whose cache no graph can take.
    """
    if len(names[1]) > 1:
        raise Unsupported(f"an export with a cache returns the first output, and the spec names {len(names[1])}")
    decoder = TorchDecoder(framework, model, dict.fromkeys(names[0]), names[1][0])
    rows = torch.arange(ROWS) % len(inputs[0])
    tokens, *more = (each[rows] for each in inputs)
    half = tokens.shape[1] // 2
    with torch.no_grad(), one_path(model):
        template, axes = _cache(decoder, tokens[:, :half], more)
        past = [each.clone() for each in _tensors(decoder, template)]
        given, opened = _example(decoder, names, tokens, more, half if past else 0)
        for number, (tensor, each) in enumerate(zip(past, axes)):
            given[f"{PAST}.{number}"] = tensor
            opened[f"{PAST}.{number}"] = _opened(tensor, each, BEFORE)
            opened[f"{PRESENT}.{number}"] = _opened(tensor, each, TOTAL)
        returned = [names[1][0], *(f"{PRESENT}.{number}" for number in range(len(past)))]
        with _as_graph(decoder, template, len(more), len(given)):
            return export(model, tuple(given.values()), (list(given), returned), path, with_weights, opened)


def _example(
    decoder: TorchDecoder, names: Names, tokens: Any, more: Sequence[Any], before: int
) -> tuple[dict[str, Any], dict[str, tuple[str | None, ...]]]:
    """(the inputs of a call after so many tokens by name, the open axes of them and of the first output), without the cache."""
    given = {names[0][0]: tokens[:, before:], **dict(zip(names[0][1:], more))}
    opened: dict[str, tuple[str | None, ...]] = {names[0][0]: (BATCH, TOKENS), names[1][0]: (BATCH, TOKENS)}
    opened.update(dict.fromkeys(names[0][1:], (BATCH,)))
    if decoder.offers.mask:
        given[MASK], opened[MASK] = torch.ones(tokens.shape, dtype=torch.int64), (BATCH, TOTAL)
    if decoder.offers.positions:
        places = torch.arange(before, tokens.shape[1])[None].repeat(ROWS, 1)
        given[POSITIONS], opened[POSITIONS] = places, (BATCH, TOKENS)
    return given, opened


def _opened(tensor: Any, axes: CacheAxes, places: str) -> tuple[str | None, ...]:
    return tuple(
        BATCH if axis == axes.rows else places if axis == axes.places else None for axis in range(tensor.dim())
    )


@contextmanager
def one_path(model: Any) -> Iterator[None]:
    """A context in which a mixture of experts of transformers computes all tokens alike, so that a trace fits other tokens."""
    config = getattr(model, "config", None)
    before = getattr(config, "_experts_implementation", None)
    if before is None or not hasattr(model, "set_experts_implementation"):
        yield
        return
    model.set_experts_implementation("batched_mm")
    try:
        yield
    finally:
        model.set_experts_implementation(before)


def _cache(decoder: TorchDecoder, tokens: Any, more: Sequence[Any]) -> tuple[Any, list[CacheAxes]]:
    """(the cache after these tokens, the axes of its tensors); (None, []) of a model without a cache.

    The axes are those that change with the numbers of sequences and of tokens.
    """
    if decoder.offers.lacks:
        return None, []

    def after(rows: int, count: int, start: Any = None) -> Any:
        given = [each[torch.arange(rows) % ROWS].numpy() for each in (tokens[:, :count], *more)]
        return decoder.call(given[0], start, more=given[1:])[1]

    count = tokens.shape[1]
    first = after(ROWS, count)
    known = _layers(first) is not None  # then every layer keeps all tokens where the cache is none of the model's own
    cache, *others = (
        after(*size, _rebuilt(first, []) if known else None)
        for size in ((ROWS, count), (ROWS + 1, count), (ROWS, count - 1))
    )
    shapes, wider, shorter = ([tuple(each.shape) for each in _tensors(decoder, each)] for each in (cache, *others))
    if not shapes or not len(shapes) == len(wider) == len(shorter):
        raise Unsupported(f"{type(cache).__name__} holds {len(shapes)} tensors, and another number of other sequences")
    found = [CacheAxes(_changed(own, other), _changed(own, less)) for own, other, less in zip(shapes, wider, shorter)]
    for number, axes in enumerate(found):
        if axes.rows is None or axes.places is None:
            raise Unsupported(
                f"tensor {number} of {type(cache).__name__} has shape {shapes[number]}, and no axis that grows with the "
                "tokens: no graph can begin with an empty one"
            )
    return cache, found


def _changed(before: tuple[int, ...], after: tuple[int, ...]) -> int | None:
    """The only axis whose size differs; None where there is none."""
    axes = [axis for axis, (old, new) in enumerate(zip(before, after)) if old != new]
    return axes[0] if len(axes) == 1 and len(before) == len(after) else None


def _layers(cache: Any) -> list[Any] | None:
    """The layers of a cache of transformers that holds keys and values; of one for an encoder, too, those of the tokens alone."""
    own = getattr(cache, "self_attention_cache", cache)
    layers = getattr(own, "layers", None)
    of_transformers = type(cache).__module__.startswith("transformers.")
    return list(layers) if of_transformers and layers and all(hasattr(each, "keys") for each in layers) else None


def _tensors(decoder: TorchDecoder, cache: Any) -> list[Any]:
    """The tensors of a cache that go through the graph; [] where there is no cache."""
    layers = _layers(cache)
    if layers is not None:
        return [tensor for layer in layers for tensor in (layer.keys, layer.values)]
    return [] if cache is None else decoder.tensors(cache)


def _rebuilt(template: Any, tensors: Sequence[Any]) -> Any:
    """A cache like another one, with other tensors.

    One of transformers keeps all tokens: its masks leave out those before a window, and a layer that forgets them would count in
    numbers that a trace cannot hold.
    """
    if _layers(template) is None:
        left = iter(tensors)
        return _replaced(template, left)
    from transformers import DynamicCache, EncoderDecoderCache

    cache = DynamicCache()
    for layer, (keys, values) in enumerate(zip(tensors[::2], tensors[1::2])):
        cache.update(keys, values, layer)
    return EncoderDecoderCache(cache, DynamicCache()) if hasattr(template, "self_attention_cache") else cache


def _replaced(value: Any, left: Iterator[Any]) -> Any:
    """A copy of a structure whose tensors are replaced, in the order of ``TorchDecoder.tensors``."""
    if is_tensor(value):
        return next(left)
    if isinstance(value, dict):
        return {key: _replaced(part, left) for key, part in value.items()}
    if isinstance(value, (tuple, list)):
        changed = [_replaced(part, left) for part in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    if not hasattr(value, "__dict__") or isinstance(value, (type, torch.nn.Module)):
        return value
    made = copy.copy(value)
    for name, part in vars(value).items():
        object.__setattr__(made, name, _replaced(part, left))
    return made


@contextmanager
def _as_graph(decoder: TorchDecoder, template: Any, more: int, count: int) -> Iterator[None]:
    """A context in which the module takes and returns tensors alone, in the order of the graph.

    The module itself is changed, because a module around it would change the names of weights and nodes.
    more: number of further inputs. count: of all inputs.
    """
    model, offers, original = decoder.model, decoder.offers, decoder.model.forward

    def forward(*given: Any) -> Any:
        first, rest, named = given[: 1 + more], list(given[1 + more :]), dict[str, Any]()
        for name in filter(None, (offers.mask, offers.positions)):
            named[name] = rest.pop(0)
        if offers.use_cache:
            named[offers.use_cache] = template is not None
        if template is None:
            return decoder.logits(original(*first, **named))
        named[offers.cache] = _rebuilt(template, rest)
        returned = original(*first, **named)
        return decoder.logits(returned), *_tensors(decoder, decoder.cache(returned))

    # The newer exporter reads the parameters, each with its open axes.
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(f"input{number}", kind) for number in range(count)])
    forward.__signature__ = signature  # type: ignore[attr-defined]
    with replaced(model, forward=forward):
        yield
