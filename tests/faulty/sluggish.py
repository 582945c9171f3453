"""Takes a fifth of a second for every call: has no fault, but no time limit holds without ending it early."""

import time

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    def call(x):
        time.sleep(0.2)
        return model(x)

    return call


class Adapter(Numpy):
    name = "sluggish"
    modes = {"eager": eager}
