"""Faults of attention: the scale, the mask, and the axis of the softmax."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....replay.operation import Compute, Keywords, Operation
from .arithmetic import ORDINALS
from .masks import is_mask, with_mask
from .operation import Change, first_argument, others, with_argument, with_keywords, with_result

PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum", "rmatmul")
FARTHEST = 6  # operations between a softmax and the product whose values it takes
SDPA = "scaled_dot_product_attention"
NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")  # of its positional arguments
# The arguments of multi_head_attention_forward whose first rows make the queries: of one packed weight, or of separate ones where
# keys or values have a size of their own.
QUERIES = {5: "in_proj_weight", 6: "in_proj_bias", 18: "q_proj_weight"}


def attention(operation: Operation) -> Iterator[Change]:
    """All faults of attention that this operation may have."""
    name = operation.name
    if name in ("softmax", "log_softmax"):
        yield from _softmax(operation)
    elif name == SDPA:
        yield from _fused(operation)
    elif name in PRODUCTS:
        yield from _product(operation)
    elif name == "multi_head_attention_forward":
        yield from _module(operation)


# -- softmax and products -----------------------------------------------------------------------------------------------


def _softmax(operation: Operation) -> Iterator[Change]:
    axis, x = operation.argument(1, "dim", default=-1), operation.argument(0, "input")
    if not isinstance(x, Tensor) or not isinstance(axis, int):
        return
    axes = [other for other in range(-1, -x.dim() - 1, -1) if x.shape[other] > 1]
    says = f"normalises its softmax over axis {{}}; the reference over {axis}"
    yield from others("softmax axis", says, axes, axis % x.dim() - x.dim(), partial(with_argument, operation, 1, "dim"))
    for factor, what in _factors(operation):
        yield Change(
            "softmax temperature",
            f"gives its softmax values that are {what} as large: another scale of the attention, or another temperature",
            with_argument(operation, 0, "input", lambda x, factor=factor: x * factor),
        )
    words = {"softmax": "softmax", "log_softmax": "log-softmax"}
    theirs, (name, mine) = words.pop(operation.name), words.popitem()
    says = f"takes the {mine} where the reference takes the {theirs}"
    yield Change("log-softmax", says, first_argument(lambda x: getattr(torch, name)(x, axis)))
    yield Change("softmax missing", "leaves out a softmax", first_argument())
    yield Change(
        "sigmoid for softmax", "takes the sigmoid where the reference takes a softmax", first_argument(torch.sigmoid)
    )


def _factors(operation: Operation) -> Iterator[tuple[float, str]]:
    """Other scales of an attention: factors by which they differ from the reference's, with words."""
    sizes = list(operation.sources[0].tensor.shape)
    maker: Operation | None = operation
    for _ in range(FARTHEST):
        if maker is None or not maker.sources:
            break
        if maker.name in PRODUCTS:
            sizes = [*maker.sources[0].tensor.shape[:-3:-1], *sizes]
            break
        maker = maker.sources[0].maker
    for size in dict.fromkeys(size for size in sizes if size > 1):
        yield size**0.5, f"√{size} times"
        yield size**-0.5, f"1/√{size} times"
        yield float(size), f"{size} times"
        yield 1 / size, f"1/{size} times"
    for factor in (2.0, 0.5, 10.0, 0.1):
        yield factor, f"{factor:g} times"


def _product(operation: Operation) -> Iterator[Change]:
    """Another scale of a product, and a square operand that is transposed."""
    operands = [source.tensor for source in operation.sources[:2]]
    if len(operands) < 2:
        return
    first, second = operands
    if operation.name == "einsum":
        yield from _transposed_operands(operation)
    else:
        for place, operand in enumerate(operands[: len(operation.args)]):
            if operand.dim() > 1 and operand.shape[-1] == operand.shape[-2] > 1:
                says = f"has the {ORDINALS[place]} operand of a matrix product transposed"
                yield Change("operand transposed", says, with_argument(operation, place, "", lambda x: x.mT))
        if first.shape == second.shape and len(operation.args) > 1:
            exchanged: Compute = lambda args, kwargs: operation.function(args[1], args[0], *args[2:], **kwargs)  # noqa: E731
            yield Change("operands exchanged", "has the operands of a matrix product exchanged", exchanged)
    if first.dim() < 3:
        return
    for size in dict.fromkeys((first.shape[-1], first.shape[1])):
        if size > 1:
            for factor, word in ((size**0.5, f"√{size}"), (size**-0.5, f"1/√{size}")):
                says = f"has a product of matrices that is {word} times as large: another scale of the attention"
                yield Change("attention scale", says, with_result(operation, lambda y, factor=factor: y * factor))


def _transposed_operands(operation: Operation) -> Iterator[Change]:
    """An operand of an einsum with two axes of one size exchanged, and one of complex numbers conjugated."""
    equation, *operands = operation.args
    for place, operand in enumerate(operands if isinstance(equation, str) else (), 1):
        what = ORDINALS[place - 1] if place <= len(ORDINALS) else f"{place}th"
        for a, b in itertools.combinations(range(operand.dim()), 2):
            if operand.shape[a] == operand.shape[b] > 1:
                says = f"has axes {a} and {b} of the {what} operand of an einsum exchanged"
                transposed = with_argument(operation, place, "", lambda x, a=a, b=b: x.transpose(a, b))
                yield Change("operand transposed", says, transposed)
        if operand.is_complex():
            says = f"takes the conjugate of the {what} operand of an einsum"
            yield Change("conjugate", says, with_argument(operation, place, "", torch.conj))


# -- attention in one function ------------------------------------------------------------------------------------------


def _fused(operation: Operation) -> Iterator[Change]:
    q, k = operation.argument(0, "query"), operation.argument(1, "key")
    mask, causal = operation.argument(3, "attn_mask"), operation.argument(5, "is_causal", default=False)
    right = operation.argument(6, "scale") or q.shape[-1] ** -0.5
    yield from _scales(operation, q, right)
    yield from _groups(operation, q, k)
    if isinstance(mask, Tensor):
        yield from with_mask(operation, 3, "attn_mask")
        yield Change("mask missing", "does not apply a mask", with_argument(operation, 3, "attn_mask", None))
        return
    positions = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device)
    masks = (
        ("mask missing", "has no causal mask; the reference has one", None),
        ("mask off by one", "lets each position see one position more than the causal mask", positions.tril(1)),
        ("mask off by one", "does not let a position see itself in its causal mask", positions.tril(-1)),
        (
            "mask inverted",
            "lets each position see itself and the later ones, the reverse of a causal mask",
            positions.triu(),
        ),
        ("mask inverted", "has its causal mask inverted", positions.triu(1)),
        ("mask aligned", "aligns its causal mask with the last position", positions.tril(k.shape[-2] - q.shape[-2])),
    )
    added = (("mask added", "has a causal mask; the reference has none", positions.tril()),)
    for kind, says, allowed in masks if causal else added:
        yield Change(kind, says, with_keywords(operation, NAMES, attn_mask=allowed, is_causal=False))


def _groups(operation: Operation, q: Tensor, k: Tensor) -> Iterator[Change]:
    """Other queries for each key, where several heads share one."""
    if q.dim() < 4 or q.shape[-3] == k.shape[-3] or k.shape[-3] == 1:
        return
    times = q.shape[-3] // k.shape[-3]

    def repeated(x: Tensor) -> Tensor:
        return torch.cat([x] * times, -3)

    says = "gives every key to heads that are apart, where the reference gives it to heads that are neighbours"
    yield Change("grouped heads", says, with_keywords(operation, NAMES, key=repeated, value=repeated, enable_gqa=False))


def _scales(operation: Operation, q: Tensor, right: float) -> Iterator[Change]:
    width = q.shape[-1]
    scales = {"1": 1.0, f"1/{width}": 1 / width, f"√{width}": width**0.5}
    for size in (q.shape[-3] if q.dim() > 3 else 1, 2, q.shape[-2]):
        scales[f"1/√{size * width}"] = (size * width) ** -0.5
    scales |= {f"{right**2:g}": right**2, f"1/√{width}": width**-0.5}
    for word, scale in scales.items():
        if not math.isclose(scale, right):
            says = f"scales its attention by {word}; the reference by {right:.4g}"
            yield Change("attention scale", says, with_argument(operation, 6, "scale", scale))


def _module(operation: Operation) -> Iterator[Change]:
    """The attention of nn.MultiheadAttention: another scale of the queries, and its masks."""
    width, heads = operation.argument(3, "embed_dim_to_check"), operation.argument(4, "num_heads")
    size = width // heads
    for place, key in ((16, "attn_mask"), (14, "key_padding_mask")):
        if is_mask(operation.argument(place, key)):
            yield from with_mask(operation, place, key)
            yield Change("mask missing", "does not apply a mask", with_argument(operation, place, key, None))
    for scale, word in ((1.0, "1"), (1 / size, f"1/{size}"), (width**-0.5, f"1/√{width}")):
        says = f"scales its attention by {word}; the reference by 1/√{size}"
        yield Change("attention scale", says, _scaled_queries(operation, width, scale * size**0.5))


def _scaled_queries(operation: Operation, width: int, factor: float) -> Callable[..., Any]:
    def scaled(tensor: Tensor | None) -> Tensor | None:
        return tensor if tensor is None else torch.cat([tensor[:width] * factor, tensor[width:]])

    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        changed = list(args)
        for place, key in QUERIES.items():
            if key in kwargs:
                kwargs = {**kwargs, key: scaled(kwargs[key])}
            elif place < len(changed):
                changed[place] = scaled(changed[place])
        return operation.function(*changed, **kwargs)

    return compute
