"""Records the operations of the reference's glue code, so that a value can be computed again with one of them changed.

Like a graph for gradients, the record of an operation lives as long as something that was computed from its results. A tensor that
agrees with what the port computes is a beginning: nothing before it is recorded any longer. So the tape holds what was computed
since the last comparisons.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from ..float64.arithmetic import float64_arithmetic
from ..float64.perturbation import Noise
from ..float64.source import Spot, innermost_line
from ..float64.structures import flatten, unflatten
from .operation import Compute, Operation, Source, Stale

# Exceptions of a computation that does not fit a layer or an operation of this shape.
REFUSALS = (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError)
MOST_KEPT = 2**28
MOST_BYTES = 2**30  # of the results that are recorded; when there are more, the record starts afresh

Arithmetic = Callable[[], AbstractContextManager[Any]]  # Any: what a context manager returns is not used

# Other spellings of the operations that the families of faults know.
SPELLED = {
    "radd": "add", "rmul": "mul", "truediv": "div", "true_divide": "div", "divide": "div", "multiply": "mul",
    "subtract": "sub", "concat": "cat", "concatenate": "cat", "invert": "logical_not", "bitwise_not": "logical_not",
    "swapaxes": "transpose", "swapdims": "transpose", "moveaxis": "movedim", "negative": "neg", "rtruediv": "rdiv",
    "greater_equal": "ge", "greater": "gt", "less_equal": "le", "less": "lt", "not_equal": "ne", "special_softmax": "softmax",
    "_attention": "multi_head_attention_forward",  # as called_by_weights replaces it
}  # fmt: skip
NO_CHANGES: Mapping[Operation, Compute] = {}
IN_PLACE = frozenset(("iadd", "isub", "imul", "itruediv", "iand", "ior", "ixor", "setitem", "ipow"))


class Idle(TorchFunctionMode):
    """Records nothing. Some modules of torch compute in another way within any mode, and all passes must compute alike."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Tape(TorchFunctionMode):
    """The operations that the reference's code computes within ``recording``.

    keep: whether operations are also kept of which nothing lives any longer. kept: these, up to MOST_KEPT bytes of results.
    """

    def __init__(self, keep: bool = False) -> None:
        super().__init__()
        self.keep, self.kept = keep, list[Operation]()
        self._made: Any = WeakTensorKeyDictionary()  # tensor -> (operation, index of the result, version)
        self._live: weakref.WeakSet[Operation] = weakref.WeakSet()
        self._number = self._bytes = 0
        self._called_from = ""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Compute in float64 within the context, and record the operations."""
        with float64_arithmetic(), self:
            yield

    @contextmanager
    def recording_layer(self, spots: Sequence[Spot]) -> Iterator[None]:
        """Record the operations of a layer within the context. spots: the lines of the model that call it."""
        self._called_from = f"{spots[-1].file}:{spots[-1].line}" if spots else ""
        try:
            with self:
                yield
        finally:
            self._called_from = ""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        name, in_place = spelled(func, named)
        if named.get("out") is not None or (in_place and not _is_plain(args[0] if args else None)):
            return func(*args, **named)
        recorded = args
        if in_place:  # the record keeps the value that is overwritten
            recorded = (args[0].clone(), *args[1:])
            self._assign(recorded[0], self._maker(args[0]))
        result = func(*args, **named)
        results = [args[0]] if in_place else flatten(result)
        if not results:  # a property such as a shape
            return result
        given = flatten((recorded, named))
        if all(map(_is_plain, (*given, *results))) and not any(r is t for r in results for t in given):
            function = _without_overwriting(func) if in_place else func
            self._record(name, function, recorded, named, results, in_place)
        return result

    # -- the record ---------------------------------------------------------------------------------------------------

    def _record(
        self, name: str, function: Callable[..., Any], args: Any, kwargs: Any, results: list[Tensor], in_place: bool
    ) -> None:
        size = sum(result.numel() * result.element_size() for result in results if not result._is_view())
        self._number += 1
        line, instruction = innermost_line(__file__)
        operation = Operation(
            name=name,
            function=function,
            args=tuple(args),
            kwargs=kwargs,
            sources=[self._source(tensor) for tensor in flatten((args, kwargs))],
            shapes=[tuple(result.shape) for result in results],
            size=size,
            line=line or self._called_from,
            instruction=instruction,
            number=self._number,
            in_place=in_place,
        )
        self._live.add(operation)
        if self.keep and self._bytes <= MOST_KEPT:
            self.kept.append(operation)
        for index, result in enumerate(results):
            self._made[result] = (operation, index, result._version)
        self._bytes += size
        if self._bytes > MOST_BYTES:
            self._bytes = sum(each.size for each in self._live)
            if self._bytes > MOST_BYTES:
                self._made, self._bytes = WeakTensorKeyDictionary(), 0

    def _maker(self, tensor: Tensor) -> tuple[Operation, int] | None:
        """The operation that made the present value of a tensor, and which result it is; None where it is a beginning."""
        found = self._made.get(tensor)
        if found is None:
            return None
        operation, index, version = found
        return None if version != tensor._version or index in operation.right else (operation, index)

    def _assign(self, tensor: Tensor, maker: tuple[Operation, int] | None) -> None:
        if maker is not None:
            self._made[tensor] = (*maker, tensor._version)

    def _source(self, tensor: Tensor) -> Source:
        maker, index = self._maker(tensor) or (None, 0)
        return Source(tensor, tensor._version, maker, index)

    def settle(self, tensor: Tensor) -> None:
        """Note that a tensor agrees with what the port computes: it is a beginning."""
        found = self._maker(tensor) if _is_plain(tensor) else None
        if found is not None:
            found[0].right.add(found[1])
            del self._made[tensor]

    # -- computing again ----------------------------------------------------------------------------------------------

    def behind(self, target: Tensor) -> list[Operation]:
        """The operations from which a tensor was computed, in order, since the last tensors that agree with the port's."""
        start = self._maker(target) if _is_plain(target) else None
        operations: dict[int, Operation] = {}
        left = [start[0]] if start is not None else []
        while left:
            operation = left.pop()
            if operation.number in operations:
                continue
            operations[operation.number] = operation
            left += [each.maker for each in operation.sources if each.maker and each.index not in each.maker.right]
        return [operations[number] for number in sorted(operations)]

    def value(
        self, target: Tensor, computes: Mapping[Operation, Compute], operations: Sequence[Operation]
    ) -> Tensor | None:
        """What a tensor is with some operations changed; None where the change does not fit them.

        computes: what each changed operation computes. operations: those behind the tensor.
        """
        return self._computed(target, operations, float64_arithmetic, Source.value, computes)

    def perturbed(
        self,
        target: Tensor,
        operations: Sequence[Operation],
        noise: Noise,
        arithmetic: Arithmetic,
        computes: Mapping[Operation, Compute] = NO_CHANGES,
    ) -> Tensor | None:
        """Compute a tensor again with every operation behind it rounded, and every tensor that they start from.

        operations: those behind the tensor. noise: rounds the tensors at the start. arithmetic: the context that rounds operations.
        computes: what each changed operation computes. None where an operation cannot be computed again.
        """
        given: dict[int, Tensor] = {}  # by the identity of a tensor, which its source keeps alive

        def value_of(source: Source) -> Tensor:
            if id(source.tensor) not in given:
                given[id(source.tensor)] = noise.given(source.value())
            return given[id(source.tensor)]

        return self._computed(target, operations, arithmetic, value_of, computes, every=True)

    def _computed(
        self,
        target: Tensor,
        operations: Sequence[Operation],
        arithmetic: Arithmetic,
        value_of: Callable[[Source], Tensor],
        computes: Mapping[Operation, Compute],
        every: bool = False,
    ) -> Tensor | None:
        """Compute a tensor again; None where an operation refuses.

        value_of: what stands for a tensor that is not computed again. computes: the operations that change. every: whether all
        operations are computed again; else only these are, and those that were given something that changes.
        """
        start = self._maker(target)
        computed: dict[tuple[Operation | None, int], Tensor] = {}
        try:
            with torch.no_grad(), arithmetic():
                for operation in operations if start is not None else ():
                    keys = [(source.maker, source.index) for source in operation.sources]
                    if not every and operation not in computes and computed.keys().isdisjoint(keys):
                        continue
                    values = [
                        computed[key] if key in computed else value_of(source)
                        for key, source in zip(keys, operation.sources)
                    ]
                    args, kwargs = unflatten((operation.args, operation.kwargs), values)
                    compute = computes.get(operation)
                    result = operation.function(*args, **kwargs) if compute is None else compute(args, kwargs)
                    computed.update({(operation, index): each for index, each in enumerate(flatten(result))})
        except (Stale, LookupError, ArithmeticError, StopIteration, *REFUSALS):
            return None
        return None if start is None else computed.get(start)


def _is_plain(value: Any) -> bool:
    """Whether a value is a tensor whose changes torch counts."""
    return isinstance(value, Tensor) and not value.is_inference()


def spelled(function: Any, kwargs: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of a function in one spelling, and whether it overwrites its first argument."""
    name, in_place = _name(function, kwargs)
    return SPELLED.get(name, name), in_place


def _name(function: Any, kwargs: Mapping[str, Any]) -> tuple[str, bool]:
    """The name of a function without underscores at its ends, and whether it overwrites its first argument."""
    given = getattr(function, "__name__", "")
    if given == "__get__":  # a property such as ``x.T``
        return getattr(getattr(function, "__self__", None), "__name__", ""), False
    dunder = given.startswith("__") and given.endswith("__")
    name = given.strip("_") if dunder else given
    if dunder:
        in_place = name in IN_PLACE
        return name[1:] if in_place and name != "setitem" else name, in_place
    in_place = (name.endswith("_") and not name.startswith("_")) or bool(kwargs.get("inplace"))
    return name.rstrip("_") or name, in_place


def _without_overwriting(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on a copy of its first argument, which it returns."""

    def compute(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        x = x.clone()
        function(x, *args, **kwargs)
        return x

    return compute
