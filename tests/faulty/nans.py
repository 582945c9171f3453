"""One output value is NaN."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    def call(x):
        y = model(x)
        y[0, 0] = float("nan")
        return y

    return call


class Adapter(Numpy):
    name = "nans"
    modes = {"eager": eager}
