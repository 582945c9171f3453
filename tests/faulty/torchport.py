"""No fault: torch under another name, so that a folder can contain a torch port of a torch model."""

from xverify.frameworks.torch import Adapter as Torch


class Adapter(Torch):
    name = "torchport"
    default_modes = ()
