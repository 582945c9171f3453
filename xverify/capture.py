"""One untimed pass that writes down what every layer took and gave, an array a file, each array once.

A layer's call is a record {"name", "call", "inputs", "outputs"}, the last two lists of file names; arrays keep the
framework's own layout. Nothing is held in memory: an activation is on disk before the next layer runs.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

Record = dict[str, Any]


class Recorder:
    """Collects the records of one pass. to_numpy: makes an array of a framework's tensor, and None of anything else."""

    def __init__(self, folder: Path, to_numpy: Callable[[Any], np.ndarray | None]) -> None:
        self.folder, self.to_numpy = folder, to_numpy
        self.records: list[Record] = []
        self.files: dict[bytes, str] = {}
        self.calls: Counter[str] = Counter()

    def begin(self, name: str, inputs: Any) -> Record:
        """Write what a layer is about to get; an in-place layer has not changed it yet."""
        record = {"name": name, "call": self.calls[name], "inputs": self._write(inputs), "outputs": []}
        self.calls[name] += 1
        self.records.append(record)
        return record

    def end(self, record: Record, outputs: Any) -> None:
        record["outputs"] = self._write(outputs)

    def _write(self, values: Any) -> list[str]:
        return [self._file(array) for array in map(self.to_numpy, _leaves(values)) if array is not None]

    def _file(self, array: np.ndarray) -> str:
        array = np.ascontiguousarray(array).reshape(array.shape)
        digest = hashlib.blake2b(array.data if array.size else b"", digest_size=16)
        digest.update(f"{array.dtype} {array.shape}".encode())
        key = digest.digest()
        if key not in self.files:
            self.files[key] = f"{len(self.files)}.npy"
            np.save(self.folder / self.files[key], array)
        return self.files[key]


def _leaves(values: Any) -> Iterator[Any]:
    """What is not a container, in order, an object once: Keras' cells return their state twice."""
    seen: set[int] = set()

    def walk(value: Any) -> Iterator[Any]:
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, (tuple, list)):
            for item in value:
                yield from walk(item)
        elif id(value) not in seen:
            seen.add(id(value))
            yield value

    return walk(values)


@contextmanager
def recording(layers: Mapping[str, Sequence[Any]], method: str, recorder: Recorder) -> Iterator[None]:
    """Within it, every call of these layers is recorded.

    layers: name -> the objects that together are that layer, in the order of their calls; mostly one. method: which of their
    methods computes.
    """
    with ExitStack() as stack:
        for name, parts in layers.items():
            open_records: list[Record] = []
            for part in parts:
                first, last = part is parts[0], part is parts[-1]
                stack.enter_context(_wrapped(part, method, name, first, last, open_records, recorder))
        yield


@contextmanager
def _wrapped(
    layer: Any, method: str, name: str, first: bool, last: bool, open_records: list[Record], recorder: Recorder
) -> Iterator[None]:
    original = getattr(layer, method)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if first:
            open_records.append(recorder.begin(name, (args, kwargs)))
        outputs = original(*args, **kwargs)
        if last and open_records:
            recorder.end(open_records.pop(), outputs)
        return outputs

    if method.startswith("__"):  # Python looks such a method up in the class
        kind = type(layer)
        layer.__class__ = type(kind.__name__, (kind,), {method: lambda self, *args, **kwargs: call(*args, **kwargs)})
        try:
            yield
        finally:
            layer.__class__ = kind
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
