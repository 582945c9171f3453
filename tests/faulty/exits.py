"""Ends its process during the import."""

import os
import sys

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "exits"

    def __init__(self, threads, device):
        print("no licence found", file=sys.stderr, flush=True)
        os._exit(7)
