"""Five per cent slower than paced, busy."""

from xverify.selftest.planted import Numpy, spinning, working


class Adapter(Numpy):
    name = "spinning"
    file = "numpy"
    modes = {"eager": working(spinning)}
