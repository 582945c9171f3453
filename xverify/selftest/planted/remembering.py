"""Computes only when the input differs from that of the last call: outputs are right, but few calls do their work."""

from typing import Any

from xverify.framework.adapter import Framework
from xverify.selftest.planted._work import Numpy, working


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    compute = working()(framework, model, example)
    last: tuple[Any, Any] = (None, None)

    def call(x: Any) -> Any:
        nonlocal last
        if last[0] is not x:
            last = (x, compute(x))
        return last[1]

    return call


class Adapter(Numpy):
    name = "remembering"
    file = "numpy"
    modes = {"eager": eager}
