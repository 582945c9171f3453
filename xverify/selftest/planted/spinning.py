"""Five per cent slower than work, busy."""

from xverify.selftest.planted import Numpy, spin, working


class Adapter(Numpy):
    name = "spinning"
    file = "numpy"
    modes = {"eager": working(spin)}
