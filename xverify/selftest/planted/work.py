"""Four milliseconds of work, and an honest model."""

from xverify.selftest.planted._work import Numpy, working


class Adapter(Numpy):
    name = "work"
    file = "numpy"
    modes = {"eager": working()}
