"""Five per cent slower than paced, idle meanwhile."""

from xverify.selftest.planted._work import Numpy, sleeping, working


class Adapter(Numpy):
    name = "sleeping"
    file = "numpy"
    modes = {"eager": working(sleeping)}
