"""Four milliseconds of work, and an honest model."""

from xverify.selftest.planted import Numpy, working


class Adapter(Numpy):
    name = "work"
    file = "numpy"
    modes = {"eager": working()}
