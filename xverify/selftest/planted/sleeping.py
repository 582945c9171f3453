"""Five per cent slower than work, idle."""

from xverify.selftest.planted import Numpy, sleep, working


class Adapter(Numpy):
    name = "sleeping"
    file = "numpy"
    modes = {"eager": working(sleep)}
