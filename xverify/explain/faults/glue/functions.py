"""Faults of functions of one value: logarithms, roots, absolute values, limits, running sums, and those of frequencies."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ....float64.activations import ACTIVATIONS
from ....replay.operation import Compute, Operation
from .operation import Change, argument, first_argument, others, with_argument, with_result

# What a port leaves out with a function.
MISSING = {
    "exp": "an exponential", "expm1": "an exponential", "log": "a logarithm", "log1p": "a logarithm", "log2": "a logarithm",
    "log10": "a logarithm", "abs": "an absolute value", "neg": "a minus sign", "sqrt": "a square root",
    "rsqrt": "a reciprocal square root", "reciprocal": "a reciprocal", "square": "a square", "floor": "a floor",
    "ceil": "a ceiling", "round": "a rounding", "cumsum": "a running sum", "cumprod": "a running product",
    "conj": "a conjugate", "clamp": "the limits of its values (clamp)", "clip": "the limits of its values (clip)",
    "clamp_min": "the lower limit of its values", "clamp_max": "the upper limit of its values",
}  # fmt: skip
# The functions that are mistaken for one another, of the same arguments.
MISTAKEN = {
    "log": ("log1p", "log2", "log10"), "log1p": ("log",), "log2": ("log", "log10"), "log10": ("log", "log2"),
    "exp": ("expm1", "exp2"), "exp2": ("exp",), "expm1": ("exp",), "sin": ("cos",), "cos": ("sin",),
    "floor": ("round", "ceil"), "ceil": ("round", "floor"), "round": ("floor", "ceil", "trunc"), "trunc": ("round", "floor"),
    "minimum": ("maximum",), "maximum": ("minimum",), "argmax": ("argmin",), "argmin": ("argmax",), "rsqrt": ("reciprocal",),
    "square": ("abs",), "amin": ("amax",), "cumsum": ("cumprod",),
}  # fmt: skip
# Functions that a minus sign may stand before or behind.
NEGATED = frozenset(("exp", "expm1", "exp2", "softplus", "sigmoid", "log1p", "relu", "cumsum"))
AS_ACTIVATION = ("ReLU", "Softplus", "Sigmoid", "ELU")  # what makes values positive, as exp does
LIMITS = {"clamp": ("min", "max"), "clip": ("min", "max"), "clamp_min": ("min",), "clamp_max": ("max",)}
# usual lower limits, below a root or a logarithm
LOWER = (0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
FACTORS = (0.5, 2.0, 0.25, 4.0, 0.125, 8.0)  # by which positions are scaled for longer sequences
LARGER = {"max": "larger", "maximum": "larger", "min": "smaller", "minimum": "smaller"}  # of two tensors
NORMS = ("backward", "forward", "ortho")


def functions(operation: Operation) -> Iterator[Change]:
    """All faults that an operation which is a function of one value may have."""
    name = operation.name
    for other in MISTAKEN.get(name, ()):
        function: Any = getattr(torch, other)
        says = f"computes {other}; the reference {name}"
        yield Change("another function", says, _calling(function))
    for other in AS_ACTIVATION if name == "exp" else ():
        yield Change("another function", f"computes {other}; the reference exp", first_argument(ACTIVATIONS[other]))
    if name == "exp":
        yield Change("another function", "computes 1 + x; the reference exp(x)", first_argument(lambda x: 1 + x))
    if name in LARGER and isinstance(operation.argument(1, "other"), Tensor):
        yield from _larger(operation)
    if name in NEGATED or name == "neg":
        yield from _negation(operation)
    if name == "pow":
        yield from _power(operation)
    elif name == "logsumexp":
        yield from _logsumexp(operation)
    if name in ("sin", "cos"):
        for factor in FACTORS:
            says = f"has angles in its sines and cosines that are {factor:g} times as large: another scale of the positions"
            yield Change(
                "position scale", says, with_argument(operation, 0, "input", lambda x, factor=factor: x * factor)
            )
    if name == "sin":
        says = f"has the sign of its {name} reversed, as a rotation in the other direction"
        yield Change("sign", says, with_result(operation, torch.neg))
    elif name.startswith("fft_"):
        yield from _transform(operation)
    elif name in ("cumsum", "cumprod"):
        yield from _running(operation)
    if name in MISSING:
        yield Change("function missing", f"leaves out {MISSING[name]}", first_argument())
    if name in LIMITS:
        yield from _limits(operation)


def _calling(function: Any) -> Compute:
    return lambda args, kwargs: function(*args, **kwargs)


def _larger(operation: Operation) -> Iterator[Change]:
    """The other one of two tensors, or one of them everywhere, where the reference takes the larger or the smaller."""
    name = operation.name
    for place, word in enumerate(("first", "second")):
        says = f"takes the {word} of two tensors, where the reference takes the {LARGER[name]} one"
        yield Change("one of two", says, argument(place, ("input", "other")[place]))
    if name in ("max", "min"):
        other, function = ("min", torch.minimum) if name == "max" else ("max", torch.maximum)
        yield Change("another function", f"computes {other}; the reference {name}", _calling(function))


def limit(operation: Operation, which: str) -> Any:
    """The lower ("min") or upper ("max") limit of the values of an operation; None where it has none."""
    keys = LIMITS[operation.name]
    return operation.argument(1 + keys.index(which), which) if which in keys else None


def _limits(operation: Operation) -> Iterator[Change]:
    keys = LIMITS[operation.name]
    for place, key in enumerate(keys, 1):
        right = operation.argument(place, key)
        if not isinstance(right, (int, float)):
            continue
        if len(keys) > 1 and operation.argument(3 - place, keys[2 - place]) is not None:
            word = "lower" if key == "min" else "upper"
            says = f"has no {word} limit for its values; the reference {right:g}"
            yield Change("limit", says, with_argument(operation, place, key, None))
        says = f"has {{:g}} for the {'lower' if key == 'min' else 'upper'} limit of its values; the reference {right:g}"
        usual = (*LOWER, -1.0) if key == "min" else (1.0, 6.0)
        yield from others("limit", says, usual, right, partial(with_argument, operation, place, key))


def _power(operation: Operation) -> Iterator[Change]:
    exponent = operation.argument(1, "exponent")
    if not isinstance(exponent, (int, float)) or isinstance(operation.argument(0, "input"), (int, float)):
        return
    words = {2: "a square", 0.5: "a square root", 3: "a cube"}
    yield Change("function missing", f"leaves out {words.get(exponent, f'the power {exponent:g}')}", first_argument())
    if exponent == 2:
        yield Change(
            "another function", "computes the absolute value; the reference the square", first_argument(torch.abs)
        )
    usual = [-exponent, *(other for other in (2, 3, 0.5) if exponent > 0)]
    says = f"raises to the power {{:g}}; the reference {exponent:g}"
    yield from others("power", says, usual, exponent, lambda other: with_argument(operation, 1, "exponent", other))


def _logsumexp(operation: Operation) -> Iterator[Change]:
    axis, keep = operation.argument(1, "dim"), operation.argument(2, "keepdim", default=False)
    x = operation.argument(0, "input")
    yield Change(
        "maximum for logsumexp", "takes the maximum where the reference takes logsumexp",
        first_argument(lambda x: torch.amax(x, axis, keep)),
    )  # fmt: skip
    if not isinstance(axis, int):
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else None
    if axis is None:
        return
    count = torch.tensor(float(x.shape[axis])).log()
    yield Change(
        "mean for sum", "averages the exponentials in its logsumexp; the reference sums them",
        with_result(operation, lambda y: y - count),
    )  # fmt: skip
    says = f"takes logsumexp over axis {{}}; the reference over {axis}"
    yield from others(
        "reduction axis", says, range(x.dim()), axis % x.dim(), lambda other: with_argument(operation, 1, "dim", other)
    )


def _negation(operation: Operation) -> Iterator[Change]:
    """A minus sign before a function that has it behind, and the other way round."""
    source = operation.sources[0]
    maker = source.maker
    if maker is None or not maker.sources or operation.name == maker.name:
        return
    x = maker.sources[0]
    if operation.name == "neg" and maker.name in NEGATED:
        says = f"takes {maker.name}(−x); the reference −{maker.name}(x)"
        yield Change("order of sign", says, lambda *_: maker.function(-x.value(), *maker.args[1:], **maker.kwargs))
    elif maker.name == "neg":
        says = f"takes −{operation.name}(x); the reference {operation.name}(−x)"
        yield Change("order of sign", says, lambda args, kwargs: -operation.function(x.value(), *args[1:], **kwargs))


def _running(operation: Operation) -> Iterator[Change]:
    axis, name = operation.argument(1, "dim", "axis"), operation.name
    what = "sum" if name == "cumsum" else "product"
    if not isinstance(axis, int):
        return
    reverse = with_argument(operation, 0, "input", lambda x: x.flip(axis))
    yield Change(
        "direction", f"takes its running {what} from the end", lambda args, kwargs: reverse(args, kwargs).flip(axis)
    )
    dim = operation.sources[0].tensor.dim()
    says = f"takes its running {what} over axis {{}}; the reference over {axis}"
    yield from others("axis", says, range(dim), axis % dim, lambda other: with_argument(operation, 1, "dim", other))


def _transform(operation: Operation) -> Iterator[Change]:
    """Another scale of a Fourier transform."""
    name = operation.name.removeprefix("fft_")
    if name.endswith("freq") or name.endswith("shift"):
        yield Change("function missing", f"leaves out {name}", first_argument())
        return
    right = operation.argument(3, "norm") or "backward"
    says = f"has the norm {{!r}} in its {name}; the reference {right!r}"
    yield from others("norm of a transform", says, NORMS, right, lambda norm: with_argument(operation, 3, "norm", norm))
    if isinstance(operation.sources[0].tensor, Tensor) and operation.sources[0].tensor.is_complex():
        yield Change(
            "conjugate",
            f"takes the conjugate of what its {name} is given",
            with_argument(operation, 0, "input", torch.conj),
        )
