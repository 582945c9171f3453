"""Five per cent slower than paced, idle meanwhile."""

from xverify.selftest.planted import Numpy, sleeping, working


class Adapter(Numpy):
    name = "sleeping"
    file = "numpy"
    modes = {"eager": working(sleeping)}
