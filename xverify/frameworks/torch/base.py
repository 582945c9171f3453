"""Code that the adapters of PyTorch share: devices, waiting, and the loss."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.runner import Runner
from xverify.framework.trains import Trains
from xverify.weights.torch import whole
from xverify.workload.losses import Loss
from xverify.workload.operations import Operations

MIB = 2**20


def channels_last(framework: OnTorch, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module with images and weights in the memory order N,H,W,C."""
    order = framework.torch.channels_last
    model = model.to(memory_format=order)

    def call(*inputs: Any) -> Any:
        return model(*(tensor.contiguous(memory_format=order) if tensor.ndim == 4 else tensor for tensor in inputs))

    return call


class OnTorch(Runner):
    """The base class of runners whose tensors are torch's."""

    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    # The module torch.
    torch: Any
    # The module torch.cuda; None on the CPU.
    accelerator: Any = None

    def use(self, torch: Any, threads: int, device: str) -> None:
        """Set the number of threads and the device. Raises Unsupported when torch has no such device."""
        torch.set_num_threads(threads)
        self.torch, self.device = torch, device
        self.blocking = device == "cpu" and type(self).wait is OnTorch.wait
        if device == "cuda":
            if not torch.cuda.is_available():
                raise Unsupported("no CUDA device: torch.cuda.is_available() is False")
            self.accelerator = torch.cuda

    def wait(self, outputs: Any) -> None:
        """On the CPU a call returns computed outputs; an accelerator continues to work after the call has returned."""
        if self.accelerator is not None:
            self.accelerator.synchronize()

    def array(self, tensor: Any) -> Array:
        """A tensor as an array; numpy has no bfloat16, whose values float32 holds exactly."""
        tensor = whole(tensor.detach()).cpu()
        found: Array = (tensor.float() if tensor.dtype == self.torch.bfloat16 else tensor).numpy()
        return found

    def taken(self, tensor: Any, places: Sequence[int], axis: int) -> Any:
        return tensor.index_select(axis, self.torch.tensor(list(places), device=tensor.device))

    @contextmanager
    def other_threads(self, number: int) -> Iterator[None]:
        before = self.torch.get_num_threads()
        self.torch.set_num_threads(number)
        try:
            yield
        finally:
            self.torch.set_num_threads(before)

    def device_memory(self) -> dict[str, float]:
        if self.accelerator is None:
            return {}
        free, total = self.accelerator.mem_get_info()
        return {
            "peak_mib": self.accelerator.max_memory_reserved() / MIB,
            "used_mib": (total - free) / MIB,
            "total_mib": total / MIB,
        }

    def device_settings(self) -> dict[str, object]:
        """The device and its settings that change numbers or speed; {} on the CPU."""
        if self.accelerator is None:
            return {}
        backends = self.torch.backends
        return {
            "gpu": self.accelerator.get_device_name(),
            "cuda": self.torch.version.cuda,
            "cudnn": backends.cudnn.version(),
            "tf32_matmul": backends.cuda.matmul.allow_tf32,
            "tf32_cudnn": backends.cudnn.allow_tf32,
            "cudnn_benchmark": backends.cudnn.benchmark,
            "cudnn_deterministic": backends.cudnn.deterministic,
        }


class TrainsOnTorch(OnTorch, Trains):
    """The base class of adapters that train with torch's gradients."""

    def autocast(self) -> Any:
        """A context, and a decorator, in which torch computes in the precision of a training run."""
        lower = self.setup.precision != "float32"
        dtype = getattr(self.torch, self.setup.precision if lower else "bfloat16")
        return self.torch.autocast(self.device, dtype, enabled=lower)

    @contextmanager
    def watched_products(self) -> Iterator[dict[str, int]]:
        from xverify.float64.own_precision import Dtypes

        with Dtypes() as seen:
            yield seen.products

    def differentiated(self, loss: Any, sources: Sequence[Any]) -> list[Any]:
        """The gradients of a loss, which is scaled meanwhile where a run scales it; None where it does not depend on a tensor."""
        scale = self.setup.loss_scale
        if scale == 1.0:
            return list(self.torch.autograd.grad(loss, sources, allow_unused=True))
        found = self.torch.autograd.grad(loss * scale, sources, allow_unused=True)
        return [None if each is None else each.float() / scale for each in found]

    def alias(self, tensor: Any) -> Any:
        if not tensor.requires_grad:
            return tensor.detach().requires_grad_()
        return tensor.clone()  # a view would be changed by operations that work in place

    @cached_property
    def operations(self) -> Operations:
        from xverify.float64.named_losses import TorchOperations

        return TorchOperations()

    def loss_value(self, loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
        from xverify.float64.named_losses import torch_loss

        return torch_loss(loss, x, t, axis, lengths)

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        return self.torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())
