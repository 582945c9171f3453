"""Is killed during the timed rounds, as the system does when memory runs out."""

import os
import signal

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    calls = 0

    def call(x):
        nonlocal calls
        calls += 1
        if calls > 12:
            os.kill(os.getpid(), signal.SIGKILL)
        return model(x)

    return call


class Adapter(Numpy):
    name = "killed"
    modes = {"eager": eager}
