"""Faults of sums and products: residual connections, scalings, activations before or after a sum."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ....float64.activations import ACTIVATIONS
from ....replay.operation import Compute, Keywords, Operation, Source
from .operation import Change, argument, first_argument, is_scalar, others, with_argument, with_result

# Operations that are activations. Each has one tensor; the other arguments are settings.
FUNCTIONS = frozenset((
    "relu", "relu6", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "elu", "celu", "selu", "hardswish", "hardsigmoid",
    "softplus", "mish", "clamp_min",
))  # fmt: skip
SPELLED = {"GELU by the error function": "gelu", "ELU": "elu", "SiLU": "silu", "ReLU": "relu", "ReLU6": "relu6"}
ALPHAS = (1.0, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 0.8, 1.5, 1.6732632423543772, 2.0)
ORDINALS = ("first", "second")
NAMES = ("input", "other")  # of the operands


@dataclass(frozen=True)
class Number:
    """The number that an activation has as its second argument.

    kind: name of the fault of another one. says, name: it in words, with a place for its value and without. values: usual ones.
    """

    kind: str
    says: str
    name: str
    key: str
    default: float
    values: tuple[float, ...]


NUMBERS = {
    "elu": Number("ELU alpha", "alpha={:g} in its ELU", "alpha", "alpha", 1.0, ALPHAS),
    "celu": Number("ELU alpha", "alpha={:g} in its CELU", "alpha", "alpha", 1.0, ALPHAS),
    "leaky_relu": Number(
        "activation slope", "the slope {:g} in its leaky ReLU", "the slope of its leaky ReLU", "negative_slope", 0.01,
        (0.01, 0.2, 0.3, 0.1, 0.25, 0.05),
    ),
    "softplus": Number(
        "Softplus beta", "beta={:g} in its softplus", "the beta of its softplus", "beta", 1.0, (1.0, 2.0, 0.5, 10.0, 0.1)
    ),
}  # fmt: skip


def arithmetic(operation: Operation) -> Iterator[Change]:
    """All faults of arithmetic that this operation may have."""
    name = operation.name
    if name in FUNCTIONS:
        yield from _around_a_sum(operation)
        yield from _activation(operation)
    elif name in ("add", "sub"):
        yield from _sum(operation)
    elif name in ("mul", "div", "rdiv", "rsub"):
        yield from _product(operation)
    elif name == "lerp":
        yield from _average(operation)


# -- sums and activations -----------------------------------------------------------------------------------------------


def _operands(operation: Operation) -> list[Any]:
    return [operation.argument(place, name) for place, name in enumerate(NAMES)]


def _sum(operation: Operation) -> Iterator[Change]:
    add, operands = operation.name == "add", _operands(operation)
    for place, maker, other in _activated(operation) if add else ():
        says = f"applies its activation ({maker.name}) after a sum; the reference to the {ORDINALS[place]} term, before the sum"
        yield Change(
            "activation after the sum",
            says,
            lambda *_, maker=maker, other=other: _applied(maker, maker.sources[0].value() + other.value()),
        )
    if operation.argument(2, "alpha", default=1) != 1:
        return
    for place, operand in enumerate(operands):
        kept = operands[1 - place]
        if isinstance(kept, Tensor) and tuple(kept.shape) == operation.shape:
            number = is_scalar(operand) and not isinstance(operand, Tensor)
            what = f"{operand:g}" if number else f"the {ORDINALS[place]} term"
            says = f"leaves out {{}} of a {'sum' if add else 'difference'}, or adds it elsewhere"
            sign = torch.neg if place == 0 and not add else torch.positive
            compute = argument(1 - place, NAMES[1 - place], sign)
            yield Change("term missing", says.format(what), compute, says.format("a number") if number else "")
    does, reference = ("subtracts", "adds") if add else ("adds", "subtracts")
    yield Change("sign", f"{does} what the reference {reference}", with_argument(operation, 1, "other", lambda x: -x))
    if not add:
        yield Change("sign", "has the terms of a difference exchanged", with_result(operation, torch.neg))
    yield from _number_of_a_sum(operation, operands)
    if all(isinstance(operand, Tensor) and operand.numel() > 1 for operand in operands):
        says = f"multiplies two tensors, where the reference {reference} them"
        yield Change("product for sum", says, lambda args, kwargs: args[0] * args[1])
        yield from _exchanged_axes(operation, operands)


def _number_of_a_sum(operation: Operation, operands: list[Any]) -> Iterator[Change]:
    """A whole number that is off by one, and one that is added after a product, or before it."""
    place = next((k for k, value in enumerate(operands) if is_scalar(value) and not isinstance(value, Tensor)), None)
    if place is None or not isinstance(operands[1 - place], Tensor):
        return
    number, verb = operands[place], "adds" if operation.name == "add" else "subtracts"
    if float(number).is_integer():
        for step in (1, -1):
            says = f"{verb} {number + step:g}; the reference {number:g}"
            group = f"{verb} {'one more' if step > 0 else 'one less'} than the reference"
            compute = with_argument(operation, place, NAMES[place], number + step)
            yield Change("off by one", says, compute, group)
    maker = operation.made_by(operands[1 - place])
    if maker is not None and maker.name in ("mul", "div") and operation.name == "add":
        factor = next((value for value in _operands(maker) if is_scalar(value)), None)
        if factor is not None:
            before = (float(factor) if maker.name == "mul" else 1 / float(factor)) * number
            says = f"adds {number:g} before it {_scales(maker, factor)}; the reference after that"
            group = f"adds {number:g} before a product, which the reference adds after it"
            yield Change("order of sum and product", says, with_result(operation, lambda y: y - number + before), group)


def _scales(operation: Operation, factor: Any) -> str:
    return f"{'multiplies' if operation.name == 'mul' else 'divides'} by {float(factor):g}"


def _exchanged_axes(operation: Operation, operands: list[Any]) -> Iterator[Change]:
    """The two operands of an outer sum exchanged, as in a[:, None] + b: its two axes are then the other way round."""
    shapes = [(1,) * (len(operation.shape) - x.dim()) + tuple(x.shape) for x in operands]
    first, second = ([axis for axis, n in enumerate(shape) if n < operation.shape[axis]] for shape in shapes)
    if len(first) == len(second) == 1 and operation.shape[first[0]] == operation.shape[second[0]]:
        says = "has the operands of an outer sum exchanged: its result is transposed"
        yield Change("operands exchanged", says, with_result(operation, lambda y: y.transpose(first[0], second[0])))


def _activated(operation: Operation) -> Iterator[tuple[int, Operation, Source]]:
    """The operands of an operation with two tensors that are activations: place, activation, and the other operand."""
    for place, source in enumerate(operation.sources if len(operation.sources) == 2 else ()):
        if source.maker is not None and source.maker.name in FUNCTIONS and source.maker.sources:
            yield place, source.maker, operation.sources[1 - place]


def _applied(activation: Operation, x: Tensor) -> Any:
    """What an activation computes from another tensor."""
    return activation.function(x, *activation.args[1:], **activation.kwargs)


def _around_a_sum(operation: Operation) -> Iterator[Change]:
    """The activation before the sum, where the reference has it after the sum."""
    maker = operation.made_by(operation.argument(0, "input"))
    if maker is None or maker.name != "add" or len(maker.sources) != 2:
        return
    first, second = maker.sources
    if first.tensor.dim() != second.tensor.dim():
        return
    for what, changed in (("first term", (True, False)), ("second term", (False, True)), ("terms", (True, True))):

        def compute(*_: Any, changed: tuple[bool, bool] = changed) -> Any:
            values = (first.value(), second.value())
            a, b = (_applied(operation, x) if change else x for x, change in zip(values, changed))
            return a + b

        says = (
            f"applies its activation ({operation.name}) to the {what} of a sum, before the sum; the reference after it"
        )
        yield Change("activation before the sum", says, compute)


def _activation(operation: Operation) -> Iterator[Change]:
    name = operation.name
    if name in NUMBERS:
        number = NUMBERS[name]
        right = float(operation.argument(1, number.key, default=number.default))
        says = f"has {number.says}; the reference {right:g}"
        yield from others(
            number.kind, says, number.values, right, lambda value: with_argument(operation, 1, number.key, value)
        )
    approximate = operation.argument(1, "approximate", default="none") if name == "gelu" else "none"
    for other, function in ACTIVATIONS.items():
        if SPELLED.get(other, other.lower()) == name and name != "elu" and approximate == "none":
            continue
        kind = "GELU form" if name == "gelu" == other[:4].lower() else "another activation"
        yield Change(kind, f"computes {other}; the reference {name}", first_argument(function))
    if name == "sigmoid":
        yield Change(
            "softmax for sigmoid", "takes a softmax over axis -1; the reference a sigmoid", first_argument(_softmax)
        )
    yield Change("activation missing", f"leaves out an activation ({name})", first_argument())


def _softmax(x: Tensor) -> Tensor:
    return x.softmax(-1)


# -- products -----------------------------------------------------------------------------------------------------------


def _product(operation: Operation) -> Iterator[Change]:
    name = operation.name
    x, other = operands = _operands(operation)
    if name in ("rdiv", "rsub"):
        if is_scalar(other):
            what = "divides by" if name == "rdiv" else "subtracts from a number"
            yield Change("term missing", f"uses as it is what the reference {what}", first_argument())
        return
    if isinstance(other, Tensor) and not is_scalar(other) and is_scalar(x):
        x, other = other, x
    if is_scalar(other) and isinstance(x, Tensor):
        yield from _scalings(operation, float(other))
        if name == "mul" and not x.dim():
            says = "leaves out the computed factor of a number"
            yield Change("factor missing", says, first_argument(lambda y: torch.full_like(y, float(other))))
        return
    if name == "mul":
        yield from _gate(operation)
    else:
        yield Change("division", "multiplies by what the reference divides by", lambda args, kwargs: args[0] * args[1])
        yield Change("division", "has dividend and divisor exchanged", with_result(operation, torch.reciprocal))
        yield from _divisor(operation, other)
    for place, operand in enumerate(operands):
        kept = operands[1 - place]
        whole = isinstance(kept, Tensor) and isinstance(operand, Tensor) and tuple(kept.shape) == operation.shape
        if whole and (name == "mul" or place == 1):
            says = f"leaves out the {ORDINALS[place]} factor of a product"
            if name == "div":
                says = "does not divide by what the reference divides by"
            yield Change("factor missing", says, argument(1 - place, NAMES[1 - place]))
    if name == "mul" and all(isinstance(operand, Tensor) for operand in operands):
        says = "adds two tensors, where the reference multiplies them"
        yield Change("sum for product", says, lambda args, kwargs: args[0] + args[1])


def _average(operation: Operation) -> Iterator[Change]:
    """Faults of a weighted average of two tensors, such as a momentum: (1 - w)·a + w·b."""
    first, second = argument(0, "input"), argument(1, "end")
    weight = argument(2, "weight")
    for what, compute in (("first", first), ("second", second)):
        yield Change("average missing", f"takes the {what} of two tensors, where the reference averages them", compute)
    says = "exchanges the weights of an average of two tensors"
    yield Change("weights exchanged", says, with_argument(operation, 2, "weight", lambda w: 1 - w))

    def sum_of(weigh_first: bool, weigh_second: bool) -> Compute:
        def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
            a, b, w = first(args, kwargs), second(args, kwargs), weight(args, kwargs)
            return (a * (1 - w) if weigh_first else a) + (b * w if weigh_second else b)

        return compute

    for what, weighed in (("first", (False, True)), ("second", (True, False))):
        says = f"adds the {what} of two tensors with weight 1, where the reference averages them"
        yield Change("weight missing", says, sum_of(*weighed))


def _divisor(operation: Operation, divisor: Tensor) -> Iterator[Change]:
    """A count that is off by one, and the root or the square of a divisor."""
    if isinstance(divisor, Tensor) and bool((divisor == divisor.round()).all()):
        for step, says in (
            (-1, "divides by one less than the reference"),
            (1, "divides by one more than the reference"),
        ):
            yield Change("off by one", says, with_argument(operation, 1, "other", lambda n, step=step: n + step))


def _gate(operation: Operation) -> Iterator[Change]:
    """The activation of the other factor: in a gated unit such as SwiGLU, one branch is the gate and the other one the value."""
    if len({source.tensor.shape for source in operation.sources}) > 1:
        return
    for place, maker, other in _activated(operation):
        says = f"applies its activation ({maker.name}) to the {ORDINALS[1 - place]} factor of a product; the reference to the "
        yield Change(
            "branches exchanged",
            says + ORDINALS[place],
            lambda *_, maker=maker, other=other: maker.sources[0].value() * _applied(maker, other.value()),
        )


def _scalings(operation: Operation, given: float) -> Iterator[Change]:
    """Other factors in place of a number by which the reference multiplies, or divides."""
    right = 1 / given if operation.name == "div" and given else given
    if not right:
        return
    says = f"multiplies by {given:g}" if operation.name == "mul" else f"divides by {given:g}"
    yield from _steps(operation)
    yield from _part_of_a_sum(operation, right)
    yield from _soft_limit(operation)
    yield from _offset(operation, right)
    missing = with_result(operation, lambda y: y / right)
    yield Change(
        "scale missing", f"does not scale; the reference {says}", missing, "does not scale, as the reference does"
    )
    factors = {"scales the other way": 1 / right}
    if right == 0.5 and operation.sources and operation.sources[0].maker is not None:
        yield from _half_of(operation.sources[0].maker)
    if right > 0:
        factors |= {
            "takes the square root of this factor": math.sqrt(right),
            "takes the square of this factor": right**2,
        }
    for size in dict.fromkeys(operation.sources[0].tensor.shape if operation.sources else ()):
        if size > 1:
            factors |= {
                f"scales by 1/√{size}": size**-0.5,
                f"scales by √{size}": size**0.5,
                f"scales by 1/{size}": 1 / size,
            }
    for what, factor in factors.items():
        if not math.isclose(factor, right):
            wrong = f"{what}, a factor of {factor:.4g}; the reference {says}"
            yield Change("scale", wrong, with_result(operation, lambda y, factor=factor: y * (factor / right)))


def _part_of_a_sum(operation: Operation, right: float) -> Iterator[Change]:
    """The factor of one term, where the reference has that of the whole sum."""
    maker = operation.sources[0].maker if operation.sources else None
    if maker is None or maker.name != "add" or len(maker.sources) != 2:
        return
    for place, source in enumerate(maker.sources):
        says = f"scales the {ORDINALS[1 - place]} term of a sum alone; the reference the whole sum"
        rest = with_result(operation, lambda y, source=source: y + (1 - right) * source.value())
        yield Change("scale of a part", says, rest)


def _half_of(total: Operation) -> Iterator[Change]:
    """One of two tensors, where the reference averages them."""
    for place, source in enumerate(total.sources if total.name == "add" and len(total.sources) == 2 else ()):
        says = f"takes the {ORDINALS[place]} of two tensors, where the reference averages them"
        yield Change("one of two", says, lambda *_, source=source: source.value())


def _soft_limit(operation: Operation) -> Iterator[Change]:
    """The soft limit c·tanh(y/c), of which the first factor is y in place of c."""
    tanh = operation.sources[0].maker
    inner = tanh.sources[0].maker if tanh is not None and tanh.name == "tanh" and tanh.sources else None
    if operation.name == "mul" and inner is not None and inner.name in ("div", "mul") and tanh is not None:
        limited, source = tanh.sources[0], inner.sources[0]
        says = "multiplies the tanh of its soft limit by the value itself, y·tanh(y/c); the reference by the limit c"
        yield Change("soft limit", says, lambda *_: source.value() * limited.value().tanh())
        yield Change("soft limit", "leaves out a soft limit c·tanh(y/c)", lambda *_: source.value())


def _offset(operation: Operation, right: float) -> Iterator[Change]:
    """A number that is added after a product, where the reference adds it before."""
    maker = operation.sources[0].maker if operation.sources else None
    number = next((value for value in _operands(maker) if is_scalar(value)), None) if maker is not None else None
    if maker is not None and maker.name == "add" and number is not None:
        offset = float(number)
        factor = next(value for value in _operands(operation) if is_scalar(value))
        says = f"adds {offset:g} after it {_scales(operation, factor)}; the reference before that"
        group = f"adds {offset:g} after a product, which the reference adds before it"
        compute = with_result(operation, lambda y: y - offset * right + offset)
        yield Change("order of sum and product", says, compute, group)


def _steps(operation: Operation) -> Iterator[Change]:
    """Another number of steps between the ends of an evenly spaced table, as in the frequencies of a table of sines and cosines."""
    x = operation.sources[0].tensor if operation.sources else None
    if x is None or not is_count(x):
        return
    count = x.numel()
    for mine, theirs in ((count, count - 1), (count - 1, count)):
        yield Change(
            "number of steps",
            f"divides by {mine} in a table of {count} values, such as the frequencies of sines and cosines, where the reference "
            f"divides by {theirs}",
            with_result(operation, lambda y, factor=theirs / mine: y * factor),
        )


def is_count(x: Tensor) -> bool:
    """Whether a tensor has at least three values that are evenly spaced from zero on, as those of arange."""
    values = x.flatten()
    if max(x.shape, default=0) != x.numel() or x.numel() < 3 or x.is_complex() or x.dtype == torch.bool:
        return False
    steps = values.double().diff()
    return float(values[0]) == 0.0 and bool(steps[0] != 0) and torch.allclose(steps, steps[:1], rtol=1e-9, atol=0.0)
