"""Crashes in the first step of its first process, like a compiler that succeeds at the second attempt."""

import os
import sys
from pathlib import Path

from xverify.frameworks.numpy.adapter import Adapter as Numpy


def eager(framework, model, example):
    marker = Path(os.environ["TUMBLE_FILE"])
    if not marker.exists() or os.environ.get("TUMBLE_ALWAYS"):
        marker.touch()
        print("compiler fell over", file=sys.stderr, flush=True)
        os._exit(1)
    return model


class Adapter(Numpy):
    name = "tumbles"
    modes = {"eager": eager}

    @classmethod
    def wants_restart(cls, log):
        return "compiler fell over" in log
