"""Exchanges two channels of the output, which keeps mean, norm and histogram."""

import numpy as np

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    return lambda x: np.ascontiguousarray(model(x)[:, [1, 0, 2]])


class Adapter(Numpy):
    name = "swapped"
    modes = {"eager": eager}
