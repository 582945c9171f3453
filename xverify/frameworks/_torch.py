"""PyTorch's devices: what the adapters that compute in torch share."""

from __future__ import annotations

from typing import Any

from xverify.errors import Unsupported
from xverify.framework.adapter import Framework

MIB = 1024 * 1024


class OnTorch(Framework):
    """Waiting, memory and facts of the device. accelerator: torch.cuda, or None on the CPU."""

    devices = ("cpu", "cuda")
    torch: Any
    accelerator: Any = None

    def use(self, torch: Any, threads: int, device: str) -> None:
        """Fix threads and device. Raises Unsupported when torch has no such device."""
        torch.set_num_threads(threads)
        self.torch, self.device = torch, device
        if device == "cuda":
            if not torch.cuda.is_available():
                raise Unsupported("no CUDA device: torch.cuda.is_available() is False")
            self.accelerator = torch.cuda

    def wait(self, outputs: Any) -> None:
        """On the CPU torch has computed everything when a call returns; a device works on by itself."""
        if self.accelerator is not None:
            self.accelerator.synchronize()

    def device_memory(self) -> dict[str, float]:
        if self.accelerator is None:
            return {}
        free, total = self.accelerator.mem_get_info()
        return {
            "peak_mib": self.accelerator.max_memory_reserved() / MIB,
            "used_mib": (total - free) / MIB,
            "total_mib": total / MIB,
        }

    def alias(self, tensor: Any) -> Any:
        if not tensor.requires_grad:
            return tensor.detach().requires_grad_()
        return tensor.clone()  # no view: what works in place on it must not change the other

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean over all rows. logits: (..., classes)."""
        return self.torch.nn.functional.cross_entropy(logits.flatten(0, -2), target.flatten())

    def device_facts(self) -> dict[str, Any]:
        """What of the device and its settings changes numbers or speed."""
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
