"""Each call sleeps for two seconds, and writes its folder and how much processor time its parent process used meanwhile."""

import os
import time
from pathlib import Path

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def parent_seconds():
    tasks = Path(f"/proc/{os.getppid()}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def eager(framework, model, example):
    def call(*inputs):
        time.sleep(0.1)  # until the parent sleeps
        before = parent_seconds()
        time.sleep(2.0)
        with open(os.environ["WATCH_FILE"], "a") as file:
            file.write(f"{Path.cwd().name} {parent_seconds() - before}\n")
        return model(*inputs)

    return call


class Adapter(Numpy):
    name = "watches"
    modes = {"eager": eager}
