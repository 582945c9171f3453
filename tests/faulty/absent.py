"""A framework that is not installed."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "absent"
    needs = {"no-such-framework": "no_such_framework"}

    def __init__(self, threads, device):
        import no_such_framework  # noqa: F401
