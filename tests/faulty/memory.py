"""Requests more memory than there is."""

import numpy as np

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    return lambda *inputs: np.zeros((2**55,), np.float32)


class Adapter(Numpy):
    name = "memory"
    modes = {"eager": eager}
