"""Takes five per cent longer than ``paced``, and uses the core for the additional time."""

from xverify.selftest.planted._work import Numpy, spinning, working


class Adapter(Numpy):
    name = "spinning"
    file = "numpy"
    modes = {"eager": working(spinning)}
