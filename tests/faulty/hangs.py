"""Never returns from its first call."""

import time

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    return lambda *inputs: time.sleep(3600)


class Adapter(Numpy):
    name = "hangs"
    modes = {"eager": eager}
