"""Cannot capture its layers in eager mode; in its other modes it can. It is torch under another name, and reads torch_port.py."""

from xverify.errors import Failed
from xverify.frameworks.torch.adapter import Adapter as Torch
from xverify.frameworks.torch.adapter import eager, script, trace


def blind(framework, model, example):
    framework.blind = True
    return eager(framework, model, example)


class Adapter(Torch):
    name = "uncaptured"
    file = "torch_port"
    default_modes = ()
    modes = {"eager": blind, "trace": trace, "script": script}
    blind = False

    def capture(self, model, inputs, names, recorder):
        if self.blind:
            raise Failed("this mode shows no layers")
        return super().capture(model, inputs, names, recorder)
