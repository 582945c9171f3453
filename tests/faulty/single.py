"""A framework that cannot build a model in float64."""

from xverify.framework.adapter import Framework
from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "single"
    build = Framework.build
