"""TensorLayer 2 on TensorFlow: eager, and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Source
from xverify.frameworks.tensorflow import Adapter as TensorFlow
from xverify.frameworks.tensorflow import eager, graph
from xverify.weights import tensorlayer as weights
from xverify.weights.tensorflow import Slot


class Adapter(TensorFlow):
    name = "tensorlayer"
    needs = {"tensorlayer": "tensorlayer", "tensorflow-cpu": "tensorflow"}
    # What it imports without declaring it (matplotlib, an older opencv) is pinned there.
    isolated = "tensorlayer"
    file = ""
    modes = {"eager": eager, "graph": graph}
    mode_options = {}
    default_modes = ()  # type: ignore[assignment]  # its parent's has two
    weights_route = "canonical"

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        import tensorlayer

        self.tl = tensorlayer

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if float64:
            raise Unsupported("TensorLayer makes float32 variables only")
        model = self.define(source, options)
        model.eval()
        return model

    def forward(self, model: Any, training: bool = False) -> Any:
        """The model as a function of its inputs; the mode is the model's own."""
        if training:
            model.train()
        else:
            model.eval()
        return lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs))

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def trainable(self, model: Any) -> list[Slot]:
        return weights.slots(model)

    def disable_dropout(self, model: Any) -> list[str]:
        held = []
        for layer in model.all_layers:
            if type(layer).__name__ == "Dropout" and layer.keep < 1:
                layer.keep = 1.0
                held.append(layer.name)
        return held

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        return {}

    def environment(self) -> dict[str, Any]:
        return {**super().environment(), "tensorlayer": self.tl.__version__}
