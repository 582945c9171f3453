"""Has no fault, but is slow to start, so that other subjects do not wait for it."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "late"

    @classmethod
    def slow_start(cls):
        return "compiling its core"
