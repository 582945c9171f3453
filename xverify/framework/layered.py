"""What a framework does so that its layers are judged one by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from .capture import Recorder, recording
from .runner import Runner


class ShowsLayers(Runner):
    """A runner that records the inputs and outputs of layers. Without these methods, only outputs are compared."""

    # The mode in which ``capture`` runs the model; "" when it runs the model as none of the modes does.
    captured_mode: ClassVar[str] = "eager"
    # The name of the method with which a layer object computes; layers are captured by wrapping it.
    layer_method: ClassVar[str] = "forward"

    def layers(self, model: Any) -> Mapping[str, Sequence[Any]]:
        """The layers of the model in the order of their definition: name -> layer objects.

        A layer's name is the prefix of its weights' names. A name has several objects when only together they are the layer that
        torch has under this name. {}: layers are not accessible, and only outputs are compared.
        """
        return {}

    def side_by_side(self, parts: Sequence[Any]) -> bool:
        """Whether the objects of a name of ``layers`` compute beside one another, and not one after the other."""
        return False

    def joined_outputs(self, parts: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """What a layer returns whose objects compute side by side; None for others. outputs: what each of them returned."""
        return None

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Run one forward pass, record the inputs and outputs of layers, and return the model's outputs.

        names: native name -> canonical name of each layer to record.
        """
        layers = self._chosen_layers(model, names)
        with self.inference(), recording(layers, self.layer_method, recorder, self.joined_outputs):
            outputs = self.modes["eager"](self, model, inputs)(*inputs)
            self.wait(outputs)
        return outputs

    def _chosen_layers(self, model: Any, names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
        """Canonical name -> objects of each layer to record. names: native name -> canonical name."""
        chosen: dict[str, Sequence[Any]] = {}
        for name, objects in self.layers(model).items():
            if name in names:
                chosen[names[name]] = [*chosen.get(names[name], ()), *objects]
        return chosen

    def _differentiated_layers(self, model: Any, names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
        """As ``_chosen_layers``, without layers whose outputs are joined: the gradients of joined outputs are not known."""
        chosen = self._chosen_layers(model, names)
        return {name: objects for name, objects in chosen.items() if not self.side_by_side(objects)}
