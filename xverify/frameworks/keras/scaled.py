"""Training in float16 in Keras: the policy mixed_float16, and keras.optimizers.LossScaleOptimizer around the optimizer."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.training import INTERVAL, LEAST_SCALE, SCALE
from xverify.frameworks.keras.base import Gradients, Pass
from xverify.frameworks.keras.training import Learner, Record, Wrap


class ScaledLearner(Learner):
    """Training with a scaled loss. ``optim`` is the inner optimizer, and ``scaled`` the LossScaleOptimizer around it."""

    settled = SCALE

    def _wrap_steps(self, model: Any, wrap: Wrap) -> None:
        from keras import optimizers

        self.scaled = optimizers.LossScaleOptimizer(self.optim, initial_scale=SCALE, dynamic_growth_steps=INTERVAL)
        self.scaled.build(self.variables)
        super()._wrap_steps(model, wrap)

    def differentiate(self, batch: Sequence[Any]) -> Gradients:
        from keras import ops

        scale = ops.convert_to_tensor(self.scaled.dynamic_scale)
        return self.framework.differentiate(Pass(self.forward, tuple(batch), self.variables, scale=scale))

    def update(self, gradients: Sequence[Any]) -> None:
        self.scaled.apply(self._dense(gradients), self.variables)

    def _apply(self, record: Record, gradients: list[Any]) -> None:
        """As LossScaleOptimizer does, with torch's formulas in place of the inner optimizer."""
        from keras import ops

        scale, counter = self.scaled.dynamic_scale, self.scaled.step_counter

        def update() -> None:
            super(ScaledLearner, self)._apply(record, [each / scale for each in gradients])
            last = ops.equal(counter, INTERVAL - 1)
            scale.assign(ops.where(last, 2.0 * scale, scale))
            counter.assign(ops.where(last, 0, counter + 1))

        ops.cond(self.scaled.check_finite(gradients), update, self.scaled._stateful_handle_non_finite_grads)

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        while True:
            self.set_scaler(self.settled, 0)
            loss, found = super().gradients(*batch)
            if all(np.isfinite(each).all() for each in found.values()) or self.settled <= LEAST_SCALE:
                return loss, {name: each / np.float32(self.settled) for name, each in found.items()}
            self.settled /= 2

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        super().set_optimizer_state(steps, state)
        self.set_scaler(self.settled, 0)

    def scaler_state(self) -> tuple[float, int]:
        return float(np.array(self.scaled.dynamic_scale)), int(np.array(self.scaled.step_counter))

    def set_scaler(self, scale: float, counted: int) -> None:
        self.scaled.dynamic_scale.assign(scale)
        self.scaled.step_counter.assign(counted)
