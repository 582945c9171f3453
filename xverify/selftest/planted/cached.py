"""Computes once, and returns that output for ever."""

from xverify.selftest.planted._work import Numpy


def eager(framework, model, example):
    outputs = model(*example)
    return lambda *inputs: outputs


class Adapter(Numpy):
    name = "cached"
    file = "numpy"
    modes = {"eager": eager}
