"""Training in mixed precision in torch: torch.autocast, and for float16 torch.amp.GradScaler."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xverify.framework.adapter import Array
from xverify.framework.training import INTERVAL, LEAST_SCALE, SCALE, Batch
from xverify.frameworks.torch.base import TrainsOnTorch
from xverify.frameworks.torch.training import Learner
from xverify.workload.optimizers import Optimizer


class MixedLearner(Learner):
    """Training under torch.autocast. The weights stay in float32.

    In float16, a step runs ``accumulate``, ``unscale``, ``clip`` and ``update``, in the order of torch's documentation.
    """

    def __init__(self, framework: TrainsOnTorch, model: Any, mode: str, batch: Batch, optimizer: Optimizer) -> None:
        self.settled = SCALE
        super().__init__(framework, model, mode, batch, optimizer)
        self.forward = framework.autocast()(self.forward)
        self.set_scaler(SCALE, 0)

    def loss_of(self, outputs: Any, target: Any) -> Any:
        with self.framework.autocast():
            return super().loss_of(outputs, target)

    def differentiate(self, loss: Any) -> None:
        self.scaler.scale(loss).backward()

    def unscale(self) -> None:
        """Divide the gradients by the scale."""
        self.scaler.unscale_(self.optim)

    def before_clipping(self) -> None:
        self.unscale()

    def update(self) -> None:
        self.scaler.step(self.optim)
        self.scaler.update()

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        while True:
            self.clear()
            loss = self.batch_loss(batch)
            self.differentiate(loss)
            finite = all(bool(each.grad.isfinite().all()) for each in self.parameters.values() if each.grad is not None)
            if finite or not self.recipe.scales or self.settled <= LEAST_SCALE:
                break
            self.settled /= 2
            self.set_scaler(self.settled, 0)
        self.unscale()
        found = self.gradient_arrays()
        self.clear()
        self.set_scaler(self.settled, 0)  # it would refuse to divide by the scale again
        return float(loss.detach()), found

    def set_optimizer_state(self, steps: int, state: Mapping[str, Any]) -> None:
        super().set_optimizer_state(steps, state)
        self.set_scaler(self.settled, 0)

    def scaler_state(self) -> tuple[float, int]:
        state = self.scaler.state_dict()
        return float(state["scale"]), int(state["_growth_tracker"])

    def set_scaler(self, scale: float, counted: int) -> None:
        enabled, device = self.recipe.scales, self.framework.device
        self.scaler = self.torch.amp.GradScaler(device, scale, growth_interval=INTERVAL, enabled=enabled)
        if enabled:
            self.scaler.load_state_dict({**self.scaler.state_dict(), "_growth_tracker": counted})
