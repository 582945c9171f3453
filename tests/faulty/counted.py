"""Counts its processes in the file COUNT_FILE. Process number COUNT_AT dies or computes a wrong result, as COUNT_DOES says."""

import os
import signal
from pathlib import Path

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    if framework.number != int(os.environ["COUNT_AT"]):
        return model
    if os.environ["COUNT_DOES"] == "dies":
        calls = iter(range(5))

        def call(*inputs):
            if next(calls, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)
            return model(*inputs)

        return call
    return lambda *inputs: model(*inputs) + 1


class Adapter(Numpy):
    name = "counted"
    file = "numpy"
    modes = {"eager": eager}

    def __init__(self, threads, device):
        super().__init__(threads, device)
        file = Path(os.environ["COUNT_FILE"])
        self.number = int(file.read_text()) + 1 if file.exists() else 1
        file.write_text(str(self.number))

    def environment(self):
        return {**super().environment(), "cores": sorted(os.sched_getaffinity(0))}
