"""ExecuTorch. It runs the folder's model in torch.py, which is exported and lowered with the same weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from xverify.errors import Unsupported
from xverify.framework.adapter import Source
from xverify.framework.capture import Recorder
from xverify.frameworks.executorch import runtime
from xverify.frameworks.torch.adapter import Adapter as Torch
from xverify.workload.spec import ModelFolder


def xnnpack(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Give what XNNPACK can compute to it, and the rest to the portable kernels."""
    return framework.function(model, example, runtime.XNNPACK)


def portable(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run the portable kernels, without a backend."""
    return framework.function(model, example, runtime.PORTABLE)


class Adapter(Torch):
    name = "executorch"
    file = "torch"
    needs = runtime.NEEDS
    isolated = runtime.ENVIRONMENT
    devices = ("cpu",)
    modes = {"xnnpack": xnnpack, "portable": portable}
    captured_mode = ""
    default_modes = ()
    copies = 6.0
    overhead = 500
    one_size = "the export fixes the sizes of all tensors"
    forks = False
    preloads = ()
    trains = False
    takes_recipe = False
    decodes = False
    plans = ()
    mixed = ()

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        self.threads, self.runtime = threads, runtime.runtime(threads)

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        flow = folder.spec.control_flow
        return f"{flow}, which torch.export cannot hold" if flow else ""

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if float64:
            raise Unsupported("ExecuTorch computes in the precision of its program, which is float32")
        return super().build(source, options)

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.no_grad()  # tensors of inference_mode cannot be exported
        return context

    def function(self, model: Any, example: tuple[Any, ...], backend: str) -> Callable[..., Any]:
        """The lowered model as a function of its inputs. backend: see ``runtime.lowered``."""
        from torch.utils import _pytree

        program, exported = runtime.lowered(self.torch, model, example, backend)
        orders = [tensor.dim_order() for tensor in example]
        call = runtime.function(self.runtime.load_program(program.buffer), runtime.METHOD, orders)
        return lambda *inputs: _pytree.tree_unflatten(call(*inputs), exported.call_spec.out_spec)

    def layers(self, model: Any) -> dict[str, list[Any]]:
        """None: XNNPACK does not show the values within its part of a program."""
        return {}

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        return xnnpack(self, model, inputs)(*inputs)

    def environment(self) -> dict[str, object]:
        return runtime.environment(self.torch, self.threads)
