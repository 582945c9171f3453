"""TensorLayer 2 on TensorFlow, eager and as a graph. Images are fed in its native layout, N,H,W,C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from xverify.errors import Unsupported
from xverify.framework.adapter import Source
from xverify.framework.own_step import BoundStep, Step
from xverify.frameworks.tensorflow.adapter import Adapter as TensorFlow
from xverify.frameworks.tensorflow.adapter import eager, graph
from xverify.weights import tensorlayer as weights
from xverify.weights.tensorflow import NamedVariable


class Adapter(TensorFlow):
    name = "tensorlayer"
    weights_module = weights
    needs = {"tensorlayer": "tensorlayer", "tensorflow-cpu": "tensorflow"}
    libraries = ("tensorlayer",)
    # The environment pins packages that TensorLayer imports without declaring them (matplotlib, an older opencv).
    isolated = "tensorlayer"
    file = ""
    modes = {"eager": eager, "graph": graph}
    mode_options = {}
    default_modes = ()
    mixed = ()
    plans = ()
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
        """The model as a function of its inputs. The mode, training or inference, is a state of the model itself."""
        if training:
            model.train()
        else:
            model.eval()
        return lambda *inputs: model(inputs[0] if len(inputs) == 1 else list(inputs))

    def own_step(self, step: BoundStep, mode: str) -> Step:
        raise Unsupported("tensorlayer does not run a train_step of the model file")

    def trainable(self, model: Any) -> list[NamedVariable]:
        variables: list[NamedVariable] = weights.named_variables(model)
        return variables

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for layer in model.all_layers:
            if type(layer).__name__ == "Dropout" and layer.keep < 1:
                layer.keep = 1.0
                changed.append(layer.name)
        return changed

    def advice_on_axes(self, model: Any, name: str, shape: tuple[int, ...]) -> str:
        return ""

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        return {}

    def environment(self) -> dict[str, object]:
        return {**super().environment(), "tensorlayer": self.tl.__version__}
