"""Records the inputs and outputs of every layer during one untimed pass.

Every call of a layer becomes a ``LayerCall``. Its arrays keep the framework's own layout. Each array is written to a file of its
own before the next layer runs, so none stays in memory; equal arrays share one file.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..weights.canonical import Array
from .structures import map_leaves, unique_leaves

LOWER = ("bfloat16", "float16")  # precisions below float32
SAMPLE = 64  # values by which arrays are told apart before they are compared
PART = 2**20  # bytes that are compared at once


@dataclass(frozen=True)
class LayerCall:
    """One call of a layer. Arrays are named by their files.

    name: name of the layer.
    call: number of earlier calls of this layer.
    inputs, outputs: files of its inputs and outputs.
    input_gradients, output_gradients: files of their gradients in a training step; None where a value has no gradient.
    input_dtype, output_dtype: "bfloat16" or "float16" where one of the inputs, or of the outputs, has this dtype; "" otherwise.
    """

    name: str
    call: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_gradients: tuple[str | None, ...] = ()
    output_gradients: tuple[str | None, ...] = ()
    input_dtype: str = ""
    output_dtype: str = ""


@dataclass
class OpenCall:
    """A call of a layer while it is being recorded. The fields are those of ``LayerCall``."""

    name: str
    call: int
    inputs: list[str]
    outputs: list[str] = field(default_factory=list)
    input_gradients: list[str | None] = field(default_factory=list)
    output_gradients: list[str | None] = field(default_factory=list)
    input_dtype: str = ""
    output_dtype: str = ""

    def closed(self) -> LayerCall:
        """The record as it stands now."""
        return LayerCall(
            self.name,
            self.call,
            tuple(self.inputs),
            tuple(self.outputs),
            tuple(self.input_gradients),
            tuple(self.output_gradients),
            self.input_dtype,
            self.output_dtype,
        )


def lower_dtype(values: Any) -> str:
    """ "bfloat16" or "float16" where a tensor of a nested structure has this dtype; "" otherwise."""
    dtypes = [str(value.dtype) for value in unique_leaves(values) if hasattr(value, "dtype")]
    return next((name for name in LOWER for dtype in dtypes if re.search(rf"\b{name}\b", dtype)), "")


class Recorder:
    """Collects the records of one pass.

    folder: the folder in which the arrays are written.
    to_numpy: function that converts a tensor of the framework to an array, and returns None for any other value.
    first: (items of a batch, items to write), see ``first_items``; None: arrays are written whole.
    """

    def __init__(
        self, folder: Path, to_numpy: Callable[[Any], Array | None], first: tuple[int, int] | None = None
    ) -> None:
        self.folder, self.to_numpy, self.first = folder, to_numpy, first
        self.begun: list[OpenCall] = []
        self.files: dict[tuple[str, tuple[int, ...], bytes], list[str]] = {}
        self.written = 0
        self.calls: Counter[str] = Counter()

    @property
    def records(self) -> list[LayerCall]:
        """One record for each call, in the order in which the calls began. A call that failed has no outputs."""
        return [call.closed() for call in self.begun]

    def begin(self, name: str, inputs: Any) -> OpenCall:
        """Open a record and write the inputs of a call, before an in-place layer changes them."""
        record = OpenCall(name, self.calls[name], self._write(inputs), input_dtype=lower_dtype(inputs))
        self.calls[name] += 1
        self.begun.append(record)
        return record

    def end(self, record: OpenCall, outputs: Any) -> None:
        """Write the outputs of a call."""
        record.outputs, record.output_dtype = self._write(outputs), lower_dtype(outputs)

    def enter(self, name: str, arguments: Any) -> tuple[OpenCall, Any]:
        """Begin a record. Returns the record, and the arguments with which to call the layer."""
        return self.begin(name, arguments), arguments

    def leave(self, record: OpenCall, outputs: Any) -> Any:
        """End a record. Returns the outputs that the layer has to return."""
        self.end(record, outputs)
        return outputs

    def _write(self, values: Any) -> list[str]:
        return [self._file(array) for array in map(self.to_numpy, unique_leaves(values)) if array is not None]

    def _file(self, array: Array) -> str:
        array = first_items(array, self.first)
        array = np.ascontiguousarray(array).reshape(array.shape)
        # A few values tell most arrays apart. Comparing with a file that has them all costs less than a digest of every array.
        sample = array.reshape(-1)[:: max(1, array.size // SAMPLE)].tobytes()
        alike = self.files.setdefault((array.dtype.str, array.shape, sample), [])
        for name in alike:
            if _same_bytes(np.load(self.folder / name, mmap_mode="r" if array.size else None), array):
                return name
        alike.append(f"{self.written}.npy")
        self.written += 1
        np.save(self.folder / alike[-1], array)
        return alike[-1]


def first_items(array: Array, first: tuple[int, int] | None) -> Array:
    """The first items of an array whose first axis is the batch. first: (items of a batch, items to keep); None keeps all."""
    return array[: first[1]] if first is not None and array.shape[:1] == first[:1] else array


def _same_bytes(one: Array, two: Array) -> bool:
    """Whether two contiguous arrays of one shape and dtype are equal to the last bit, also where they are NaN."""
    first, second = (each.reshape(-1).view(np.uint8) for each in (one, two))
    starts = range(0, len(first), PART)
    return all(np.array_equal(first[start : start + PART], second[start : start + PART]) for start in starts)


class ReplacingRecorder(Recorder):
    """Records one pass in which some calls of layers return other values than they compute.

    returned: ``returned_key`` of an output -> its value in the framework's own layout.
    to_tensor: function that converts such an array to a tensor of the framework.
    """

    def __init__(
        self,
        folder: Path,
        to_numpy: Callable[[Any], Array | None],
        returned: Mapping[str, Array],
        to_tensor: Callable[[Array], Any],
    ) -> None:
        super().__init__(folder, to_numpy)
        self.returned, self.to_tensor = returned, to_tensor

    def leave(self, record: OpenCall, outputs: Any) -> Any:
        known: dict[int, Any] = {}

        def change(value: Any) -> Any:
            if id(value) not in known and (computed := self.to_numpy(value)) is not None:
                array = self.replacement(record, len(known), computed)
                known[id(value)] = value if array is None else self.to_tensor(array)
            return known.get(id(value), value)

        return super().leave(record, map_leaves(outputs, change))

    def replacement(self, record: OpenCall, place: int, computed: Array) -> Array | None:
        """What an output becomes; None when it stays. place: see ``returned_key``. computed: its own value."""
        return self.returned.get(returned_key(record.name, record.call, place))


def returned_key(layer: str, call: int, place: int) -> str:
    """The name of an output of a call. place: number of earlier tensors among the outputs of this call."""
    return f"{layer}/{call}/{place}"


class TrainingRecorder(Recorder):
    """Records inputs, outputs and their gradients.

    alias: function that makes a new node of the graph of gradients from a tensor. Every input and output of a layer is replaced by
        such a node. The gradient of an input is then the share of this layer alone, and the gradient of an output is the sum
        over everything that uses the output.
    """

    def __init__(self, folder: Path, to_numpy: Callable[[Any], Array | None], alias: Callable[[Any], Any]) -> None:
        super().__init__(folder, to_numpy)
        self.alias = alias
        self.nodes: list[tuple[list[str | None], int, Any]] = []

    def enter(self, name: str, arguments: Any) -> tuple[OpenCall, Any]:
        record = self.begin(name, arguments)
        return record, self._aliased(record.input_gradients, arguments)

    def leave(self, record: OpenCall, outputs: Any) -> Any:
        self.end(record, outputs)
        return self._aliased(record.output_gradients, outputs)

    def _aliased(self, places: list[str | None], values: Any) -> Any:
        """A copy of a nested structure with an alias of every tensor.

        The gradient is computed with respect to a node between the tensor and its alias.

        places: gets one entry for each tensor, in order; ``take`` fills it in.
        """
        known: dict[int, Any] = {}

        def change(value: Any) -> Any:
            array = self.to_numpy(value)
            if array is None:
                return value
            if id(value) in known:
                return known[id(value)]
            places.append(None)
            if array.dtype.kind != "f":
                return value
            node = self.alias(value)
            self.nodes.append((places, len(places) - 1, node))
            known[id(value)] = self.alias(node)
            return known[id(value)]

        return map_leaves(values, change)

    def tensors(self) -> list[Any]:
        """The nodes whose gradients ``take`` needs, in the same order."""
        return [node for *_, node in self.nodes]

    def take(self, gradients: Sequence[Any]) -> None:
        """Write the gradients of ``tensors()``."""
        for (places, index, _), gradient in zip(self.nodes, gradients):
            array = None if gradient is None else self.to_numpy(gradient)
            places[index] = None if array is None else self._file(array)


# A function of the objects that together are a layer, and of what each of them returned. It returns what the layer returns;
# None when that is what the last of them returned.
Join = Callable[[Sequence[Any], Sequence[Any]], Any]


@dataclass
class _Parts:
    """The objects that together are a layer, during a capture.

    begun: the records that are open. returned: what each object returned, where there are several.
    """

    name: str
    objects: Sequence[Any]
    recorder: Recorder
    join: Join
    begun: list[OpenCall] = field(default_factory=list)
    returned: dict[int, Any] = field(default_factory=dict)

    def enter(self, part: Any, arguments: Any) -> Any:
        """Begin a record where a part is the first one. Returns the arguments with which to call the part."""
        if part is not self.objects[0]:
            return arguments
        record, arguments = self.recorder.enter(self.name, arguments)
        self.begun.append(record)
        return arguments

    def leave(self, part: Any, outputs: Any) -> Any:
        """End the record where a part is the last one. Returns the outputs that the part has to return."""
        if len(self.objects) > 1:
            self.returned[id(part)] = outputs
        if part is not self.objects[-1] or not self.begun:
            return outputs
        whole = None
        if all(id(each) in self.returned for each in self.objects):
            whole = self.join(self.objects, [self.returned.pop(id(each)) for each in self.objects])
        if whole is None:
            return self.recorder.leave(self.begun.pop(), outputs)
        self.recorder.end(self.begun.pop(), whole)
        return outputs


@contextmanager
def recording(
    layers: Mapping[str, Sequence[Any]], method: str, recorder: Recorder, join: Join = lambda parts, outputs: None
) -> Iterator[None]:
    """A context manager that records every call of these layers.

    layers: name -> the objects that together are this layer, in the order of their calls; most layers are one object.
    method: name of the method with which the objects compute.
    join: makes the outputs of a layer whose objects compute beside one another.
    """
    with ExitStack() as stack:
        for name, objects in layers.items():
            parts = _Parts(name, objects, recorder, join)
            for part in objects:
                stack.enter_context(_wrapped(part, method, parts))
        yield


@contextmanager
def _wrapped(layer: Any, method: str, parts: _Parts) -> Iterator[None]:
    original = getattr(layer, method)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = parts.enter(layer, (args, kwargs))
        return parts.leave(layer, original(*args, **kwargs))

    if method.startswith("__"):  # Python looks such a method up in the class
        kind = type(layer)
        called = type(kind.__name__, (kind,), {method: lambda self, *args, **kwargs: call(*args, **kwargs)})
        object.__setattr__(layer, "__class__", called)  # the layer's own method may refuse it
        try:
            yield
        finally:
            object.__setattr__(layer, "__class__", kind)
        return
    had = vars(layer).get(method)
    object.__setattr__(layer, method, call)
    try:
        yield
    finally:
        if had is None:
            object.__delattr__(layer, method)
        else:
            object.__setattr__(layer, method, had)
