"""Takes five per cent longer than ``paced``, and sleeps for most of the additional time."""

from xverify.selftest.planted._work import Numpy, sleeping, working


class Adapter(Numpy):
    name = "sleeping"
    file = "numpy"
    modes = {"eager": working(sleeping)}
