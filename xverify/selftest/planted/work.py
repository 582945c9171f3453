"""Four milliseconds of work per call, and correct outputs."""

from xverify.selftest.planted._work import Numpy, working


class Adapter(Numpy):
    name = "work"
    file = "numpy"
    modes = {"eager": working()}
