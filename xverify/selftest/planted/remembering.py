"""Computes an input only when it is not that of the call before: right, but only a block's first call does its work."""

from xverify.selftest.planted._work import Numpy, working


def eager(framework, model, example):
    compute, last = working()(framework, model, example), (None, None)

    def call(x):
        nonlocal last
        if last[0] is not x:
            last = (x, compute(x))
        return last[1]

    return call


class Adapter(Numpy):
    name = "remembering"
    file = "numpy"
    modes = {"eager": eager}
