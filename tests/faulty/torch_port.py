"""Has no fault: torch under another name, so that a folder can contain a torch port of a torch model."""

from xverify.frameworks.torch.adapter import Adapter as Torch


class Adapter(Torch):
    name = "torch_port"
    default_modes = ()
