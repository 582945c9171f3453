"""Simulates a device: calls return at once, a thread computes, and outputs exist only after waiting."""

import os
from concurrent.futures import Future, ThreadPoolExecutor

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    return lambda *inputs: framework.queue.submit(model, *inputs)


class Adapter(Numpy):
    name = "fakegpu"
    file = "numpy"
    modes = {"eager": eager}
    devices = ("cpu", "cuda")

    def __init__(self, threads, device):
        super().__init__(threads, device)
        self.queue = ThreadPoolExecutor(1)

    def wait(self, outputs):
        if isinstance(outputs, Future):
            outputs.result()
        else:
            self.queue.submit(int).result()

    def to_numpy(self, tensor, layout):
        return tensor.result() if isinstance(tensor, Future) else tensor

    def device_memory(self):
        return {"peak_mib": 123.0, "used_mib": float(os.environ.get("FAKE_USED", 500)), "total_mib": 1000.0}
