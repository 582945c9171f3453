"""Its calls take 1 ms, and every synchronisation 30 ms."""

import time

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    def call(*inputs):
        time.sleep(1e-3)
        return model(*inputs)

    return call


class Adapter(Numpy):
    name = "synchronises_long"
    modes = {"eager": eager}

    def wait(self, outputs):
        if isinstance(outputs, tuple) and not outputs:
            time.sleep(0.03)
