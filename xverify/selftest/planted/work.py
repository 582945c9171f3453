"""Two milliseconds of work, and an honest model."""

from xverify.selftest.planted import Numpy, nothing, working


class Adapter(Numpy):
    name = "work"
    file = "numpy"
    modes = {"eager": working(nothing)}
