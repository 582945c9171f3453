"""Numbers in glue code that a port may have with another value: alphas, slopes, eps, scales, temperatures, bases of powers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from torch import Tensor

from ....replay.operation import Compute, Operation
from .arithmetic import NUMBERS
from .attention import PRODUCTS
from .functions import LIMITS, limit
from .normalization import EPS_PLACES, MOST_EPS
from .operation import first_argument, is_scalar, with_argument, with_result


@dataclass(frozen=True)
class Setting:
    """A number of an operation.

    kind: name of the fault of another value. name: of the number, for a sentence. value: of the reference.
    compute: the operation with another value.
    """

    kind: str
    name: str
    value: float
    compute: Callable[[float], Compute]

    def says(self, value: float) -> str:
        """One clause that completes "the port ..."."""
        return f"has {value:.7g} for {self.name}; the reference {self.value:g}"


def settings(operation: Operation) -> Iterator[Setting]:
    """The numbers of an operation that a port may have with another value."""
    name = operation.name
    if name in NUMBERS:
        number = NUMBERS[name]
        right = float(operation.argument(1, number.key, default=number.default))
        yield Setting(number.kind, number.name, right, lambda value: with_argument(operation, 1, number.key, value))
    elif name in EPS_PLACES:
        right, place = operation.argument(EPS_PLACES[name], "eps", default=1e-5), EPS_PLACES[name]
        if isinstance(right, float):
            yield Setting("eps", "eps", right, lambda value: with_argument(operation, place, "eps", value))
    elif name == "scaled_dot_product_attention":
        right, says = operation.argument(6, "scale"), "the scale of its attention"
        right = right or operation.argument(0, "query").shape[-1] ** -0.5
        yield Setting("attention scale", says, right, lambda value: with_argument(operation, 6, "scale", value))
    elif name in ("softmax", "log_softmax"):
        yield Setting(
            "softmax temperature",
            "a factor of what its softmax is given",
            1.0,
            lambda factor: with_argument(operation, 0, "input", lambda x: x * factor),
        )
    elif name in ("sin", "cos"):
        says = "a factor of the angles of its sines and cosines"
        angles = partial(with_argument, operation, 0, "input")
        yield Setting("position scale", says, 1.0, lambda factor: angles(lambda x: x * factor))
    elif name in LIMITS:
        for which in LIMITS[name]:
            right = limit(operation, which)
            if isinstance(right, (int, float)) and right:
                place, word = 1 + LIMITS[name].index(which), "lower" if which == "min" else "upper"
                says = f"the {word} limit of its values"
                yield Setting("limit", says, float(right), _with_limit(operation, place, which))
    elif name in ("mul", "div", "add", "rpow", "pow"):
        yield from _number(operation)


def products(operation: Operation) -> Iterator[Setting]:
    """The factor of a product of matrices that the reference does not scale."""
    if operation.name in PRODUCTS and operation.name != "baddbmm":  # which adds a tensor to its product
        yield Setting(
            "scale of a product",
            "a factor of a product of matrices",
            1.0,
            lambda factor: with_result(operation, lambda y: y * factor),
        )


def _with_limit(operation: Operation, place: int, which: str) -> Callable[[float], Compute]:
    return lambda value: with_argument(operation, place, which, value)


def _number(operation: Operation) -> Iterator[Setting]:
    first, second = operation.argument(0, "input"), operation.argument(1, "other", "exponent")
    numbers = [value for value in (first, second) if is_scalar(value) and not isinstance(value, Tensor)]
    if len(numbers) != 1 or not numbers[0]:
        return
    given, name = float(numbers[0]), operation.name
    if name == "mul":
        yield Setting("scale", "a factor", given, lambda factor: with_result(operation, lambda y: y * (factor / given)))
    elif name == "div":
        yield Setting(
            "scale", "a divisor", given, lambda divisor: with_result(operation, lambda y: y * (given / divisor))
        )
    elif name == "add" and 0 < given <= MOST_EPS:
        yield Setting("eps", "eps", given, lambda eps: with_result(operation, lambda y: y + (eps - given)))
    elif name == "rpow" or (name == "pow" and first is numbers[0]):
        yield Setting("base", "the base of a power", given, lambda base: first_argument(lambda x: base**x))
