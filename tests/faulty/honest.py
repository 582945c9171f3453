"""Has no fault: a second framework that agrees with numpy."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "honest"
