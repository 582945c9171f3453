"""Faults of sums, products and reductions: residual connections, scalings, activations before or after a sum."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ....float64.activations import ACTIVATIONS
from ....replay.operation import Keywords, Operation, Source
from .operation import Change, first_argument, is_scalar, with_argument, with_result

# Operations that are activations. Each has one tensor; the other arguments are settings.
FUNCTIONS = frozenset((
    "relu", "relu6", "leaky_relu", "gelu", "silu", "sigmoid", "tanh", "elu", "celu", "selu", "hardswish", "hardsigmoid",
    "softplus", "mish", "clamp_min",
))  # fmt: skip
SPELLED = {"GELU by the error function": "gelu", "ELU": "elu", "SiLU": "silu", "ReLU": "relu", "ReLU6": "relu6"}
ALPHAS = (1.0, 0.1, 0.2, 0.25, 0.3, 0.5, 0.7, 0.75, 0.8, 1.5, 1.6732632423543772, 2.0)
ORDINALS = ("first", "second")


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
    elif name in ("mean", "sum", "amax", "var", "std", "var_mean"):
        yield from _reduction(operation)
    elif name in ("cumsum", "cumprod"):
        yield Change("exclusive", "leaves the value itself out of its running sum", _exclusive(operation))


# -- sums and activations -----------------------------------------------------------------------------------------------


def _operands(operation: Operation) -> list[Any]:
    return [operation.argument(0, "input"), operation.argument(1, "other")]


def _sum(operation: Operation) -> Iterator[Change]:
    yield from _activation_after(operation)
    operands = _operands(operation)
    if operation.argument(2, "alpha", default=1) != 1:
        return
    sign = "sum" if operation.name == "add" else "difference"
    for place, operand in enumerate(operands):
        other = operands[1 - place]
        if not isinstance(other, Tensor) or tuple(other.shape) != operation.shape:
            continue
        what = (
            f"{operand:g}" if is_scalar(operand) and not isinstance(operand, Tensor) else f"the {ORDINALS[place]} term"
        )
        negative = operation.name == "sub" and place == 0
        yield Change(
            "term missing",
            f"leaves out {what} of a {sign}, or adds it elsewhere",
            _one_operand(operation, 1 - place, -1 if negative else 1),
        )
    if operation.name == "add":
        yield Change("sign", "subtracts what the reference adds", with_argument(operation, 1, "other", _negative))
    else:
        yield Change("sign", "adds what the reference subtracts", with_argument(operation, 1, "other", _negative))
        yield Change("sign", "has the terms of a difference exchanged", with_result(operation, torch.neg))


def _negative(value: Any) -> Any:
    return -value


def _one_operand(operation: Operation, place: int, sign: int = 1) -> Callable[..., Any]:
    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        found = args[place] if place < len(args) else kwargs["other"]
        return found if sign == 1 else -found

    return compute


def _around_a_sum(operation: Operation) -> Iterator[Change]:
    """The activation before the sum, where the reference has it after the sum."""
    maker = operation.made_by(operation.argument(0, "input"))
    if maker is None or maker.name != "add" or len(maker.sources) != 2:
        return
    first, second = maker.sources
    if first.tensor.shape != second.tensor.shape:
        return
    name = operation.name
    says = f"applies its activation ({name}) to the {{}} of a sum, before the sum; the reference after it"

    def changed(compute: Callable[[Callable[[Tensor], Tensor], Tensor, Tensor], Tensor]) -> Callable[..., Any]:
        def run(args: tuple[Any, ...], kwargs: Keywords) -> Any:
            def function(x: Tensor) -> Tensor:
                result: Tensor = operation.function(x, *args[1:], **{**kwargs, **({} if args else {"input": x})})
                return result

            return compute(function, first.value(), second.value())

        return run

    kind = "activation before the sum"
    yield Change(kind, says.format("first term"), changed(lambda f, a, b: f(a) + b))
    yield Change(kind, says.format("second term"), changed(lambda f, a, b: a + f(b)))
    yield Change(kind, says.format("terms"), changed(lambda f, a, b: f(a) + f(b)))


def _activation_after(operation: Operation) -> Iterator[Change]:
    """The activation after the sum, where the reference has it before the sum."""
    if operation.name != "add" or len(operation.sources) != 2:
        return
    for place, source in enumerate(operation.sources):
        maker, other = source.maker, operation.sources[1 - place]
        if maker is None or maker.name not in FUNCTIONS or not maker.sources:
            continue
        yield Change(
            "activation after the sum",
            f"applies its activation ({maker.name}) after a sum; the reference to the {ORDINALS[place]} term, before the sum",
            _applied_after(maker, other),
        )


def _applied_after(maker: Operation, other: Source) -> Callable[..., Any]:
    def compute(_: Any, __: Any) -> Any:
        x = maker.sources[0].value() + other.value()
        return maker.function(x, *maker.args[1:], **maker.kwargs)

    return compute


# -- activations --------------------------------------------------------------------------------------------------------


def _activation(operation: Operation) -> Iterator[Change]:
    name = operation.name
    if name in ("elu", "celu"):
        yield from _alphas(operation, operation.argument(1, "alpha", default=1.0))
    if name == "leaky_relu":
        yield from _slopes(operation, operation.argument(1, "negative_slope", default=0.01))
    if name == "softplus":
        yield from _betas(operation, float(operation.argument(1, "beta", default=1.0)))
    approximate = operation.argument(1, "approximate", default="none") if name == "gelu" else "none"
    for other, function in ACTIVATIONS.items():
        if SPELLED.get(other, other.lower()) == name and (name != "elu") and approximate == "none":
            continue
        kind = "GELU form" if name == "gelu" == other[:4].lower() else "another activation"
        yield Change(kind, f"computes {other}; the reference {name}", first_argument(function))
    yield Change("activation missing", f"leaves out an activation ({name})", first_argument())


def _alphas(operation: Operation, right: float) -> Iterator[Change]:
    for alpha in ALPHAS:
        if alpha != right:
            yield Change(
                "ELU alpha",
                f"has alpha={alpha:g} in its {operation.name.upper()}; the reference {right:g}",
                first_argument(lambda x, alpha=alpha: getattr(F, operation.name)(x, alpha)),
            )


def _betas(operation: Operation, right: float) -> Iterator[Change]:
    for beta in (1.0, 2.0, 0.5, 10.0, 0.1):
        if beta != right:
            says = f"has beta={beta:g} in its softplus; the reference {right:g}"
            yield Change("Softplus beta", says, with_argument(operation, 1, "beta", beta))


def _slopes(operation: Operation, right: float) -> Iterator[Change]:
    for slope in (0.01, 0.2, 0.3, 0.1, 0.25, 0.05):
        if slope != right:
            yield Change(
                "activation slope",
                f"has the slope {slope:g} in its leaky ReLU; the reference {right:g}",
                first_argument(lambda x, slope=slope: F.leaky_relu(x, slope)),
            )


# -- products and reductions --------------------------------------------------------------------------------------------


def _product(operation: Operation) -> Iterator[Change]:
    name = operation.name
    x, other = _operands(operation)
    if name in ("rdiv", "rsub"):
        if is_scalar(other):
            what = "divides by" if name == "rdiv" else "subtracts from a number"
            yield Change("term missing", f"uses as it is what the reference {what}", first_argument())
        return
    if isinstance(other, Tensor) and not is_scalar(other) and is_scalar(x):
        x, other = other, x
    if is_scalar(other) and isinstance(x, Tensor):
        yield from _scalings(operation, float(other))
        return
    if name == "mul":
        yield from _gate(operation)
    if name == "div":
        yield Change("division", "multiplies by what the reference divides by", lambda args, kwargs: args[0] * args[1])
    for place, operand in enumerate(_operands(operation)):
        kept = _operands(operation)[1 - place]
        if (
            isinstance(kept, Tensor) and isinstance(operand, Tensor) and tuple(kept.shape) == operation.shape
            and (name == "mul" or place == 1)
        ):  # fmt: skip
            says = f"leaves out the {ORDINALS[place]} factor of a product"
            yield Change("factor missing", says, _one_operand(operation, 1 - place))


def _gate(operation: Operation) -> Iterator[Change]:
    """The activation of the other factor: in a gated unit such as SwiGLU, one branch is the gate and the other one the value."""
    if len(operation.sources) != 2 or operation.sources[0].tensor.shape != operation.sources[1].tensor.shape:
        return
    for place, source in enumerate(operation.sources):
        maker, other = source.maker, operation.sources[1 - place]
        if maker is None or maker.name not in FUNCTIONS or not maker.sources:
            continue
        says = f"applies its activation ({maker.name}) to the {ORDINALS[1 - place]} factor of a product; the reference to the "
        yield Change("branches exchanged", says + ORDINALS[place], _exchanged_gate(maker, other))


def _exchanged_gate(maker: Operation, other: Source) -> Callable[..., Any]:
    def compute(_: Any, __: Any) -> Any:
        given = maker.sources[0].value()
        return given * maker.function(other.value(), *maker.args[1:], **maker.kwargs)

    return compute


def _scalings(operation: Operation, given: float) -> Iterator[Change]:
    """Other factors in place of a number by which the reference multiplies, or divides."""
    right = 1 / given if operation.name == "div" and given else given
    if not right:
        return
    says = f"multiplies by {given:g}" if operation.name == "mul" else f"divides by {given:g}"
    yield from _steps(operation)
    yield Change("scale missing", f"does not scale; the reference {says}", with_result(operation, lambda y: y / right))
    others = {"scales the other way": 1 / right}
    if right > 0:
        others |= {
            "takes the square root of this factor": math.sqrt(right),
            "takes the square of this factor": right**2,
        }
    sizes = operation.sources[0].tensor.shape if operation.sources else ()
    for size in dict.fromkeys(sizes):
        if size > 1:
            others |= {
                f"scales by 1/√{size}": size**-0.5,
                f"scales by √{size}": size**0.5,
                f"scales by 1/{size}": 1 / size,
            }
    for what, factor in others.items():
        if not math.isclose(factor, right):
            yield Change(
                "scale",
                f"{what}, a factor of {factor:.4g}; the reference {says}",
                with_result(operation, lambda y, factor=factor: y * (factor / right)),
            )


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


def _reduction(operation: Operation) -> Iterator[Change]:
    name = operation.name
    if name in ("var", "std", "var_mean"):
        yield from _deviations(operation)
        return
    axes, keep = operation.argument(1, "dim", "axis"), operation.argument(2, "keepdim", default=False)
    others: dict[str, Callable[..., Tensor]] = {"mean": torch.mean, "sum": torch.sum, "amax": torch.amax}
    words = {"mean": "averages", "sum": "sums", "amax": "takes the maximum"}
    given = axes if axes is not None else tuple(range(operation.sources[0].tensor.dim()))
    for other, function in others.items():
        if other != name:
            yield Change(
                "reduction",
                f"{words[other]} where the reference {words[name]}",
                first_argument(lambda x, function=function: function(x, given, keep)),
            )
    if isinstance(axes, int):
        own: Any = others[name]
        for axis in range(operation.sources[0].tensor.dim()):
            if axis != axes % operation.sources[0].tensor.dim():
                yield Change(
                    "reduction axis",
                    f"{words[name]} over axis {axis}; the reference over {axes}",
                    first_argument(lambda x, axis=axis: own(x, axis, keep)),
                )


def _deviations(operation: Operation) -> Iterator[Change]:
    correction = operation.kwargs.get("correction", operation.kwargs.get("unbiased", True))
    x = operation.sources[0].tensor
    axes = operation.argument(1, "dim", "axis")
    if operation.name == "var_mean" or isinstance(axes, bool) or not isinstance(correction, (bool, int)):
        return
    keep = bool(operation.kwargs.get("keepdim", False))
    chosen = tuple(range(x.dim())) if axes is None else axes
    other = 0 if correction else 1
    function: Any = torch.var if operation.name == "var" else torch.std
    yield Change(
        "unbiased variance",
        "divides by n, the reference by n-1, in a variance"
        if correction
        else "divides by n-1, the reference by n, in a variance",
        first_argument(lambda x: function(x, chosen, correction=other, keepdim=keep)),
    )


def _exclusive(operation: Operation) -> Callable[..., Any]:
    def compute(args: tuple[Any, ...], kwargs: Keywords) -> Any:
        result = operation.function(*args, **kwargs)
        return result - args[0] if operation.name == "cumsum" else result / args[0]

    return compute
