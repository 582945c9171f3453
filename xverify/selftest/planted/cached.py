"""Computes one output, and returns it from every call."""

from typing import Any

from xverify.framework.adapter import Framework
from xverify.selftest.planted._work import Numpy


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    outputs = model(*example)
    return lambda *inputs: outputs


class Adapter(Numpy):
    name = "cached"
    file = "numpy"
    modes = {"eager": eager}
