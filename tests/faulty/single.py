"""A framework without a float64 form."""

from xverify.framework.adapter import Framework
from xverify.frameworks.numpy import Adapter as Numpy


class Adapter(Numpy):
    name = "single"
    build = Framework.build
