"""Lazy and correct: computes an output when the harness waits for it."""

from collections.abc import Callable
from typing import Any

import numpy as np

from xverify.framework.adapter import Array, Framework
from xverify.selftest.planted._work import Numpy


class Promise:
    """An output that is computed when it is first read. Its shape and dtype are known before, as those of a lazy framework are."""

    def __init__(self, compute: Callable[[], Array], like: Array) -> None:
        self.compute, self.shape, self.dtype = compute, like.shape, like.dtype
        self.value: Array | None = None

    def get(self) -> Array:
        if self.value is None:
            self.value = self.compute()
        return self.value


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    def slow(x: Array) -> Any:
        work = np.ones((300, 300))
        for _ in range(4):
            work = work @ work / 300
        return model(x) + np.float32(0 * work[0, 0])

    like = model(*example)
    return lambda x: Promise(lambda: slow(x), like)


class Adapter(Numpy):
    name = "lazy"
    file = "numpy"
    modes = {"eager": eager}

    def wait(self, outputs: Any) -> None:
        if isinstance(outputs, Promise):
            outputs.get()

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return super().to_numpy(tensor.get() if isinstance(tensor, Promise) else tensor, layout)
