"""Computes once, and returns that output for ever."""

from xverify.frameworks.numpy import Adapter as Numpy


def eager(framework, model, example):
    outputs = model(*example)
    return lambda *inputs: outputs


class Adapter(Numpy):
    name = "cached"
    modes = {"eager": eager}
