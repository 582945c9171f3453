"""Writes invalid data into the pipe of the protocol."""

import os

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "breaks"

    def build(self, source, options, float64=False):
        for descriptor in range(3, 20):
            try:
                os.write(descriptor, b"%%% garbage %%%\n")
            except OSError:
                continue
        return super().build(source, options, float64)
