"""What a framework does as the reference of a run: it exports and calibrates a model, and tells its precisions and sizes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from ..errors import Unsupported
from .outline import Outlined
from .runner import Runner

# (names of the inputs, names of the outputs) of a model.
Names = tuple[list[str], list[str]]
# Name of an input or output -> for each of its axes, its name where the size is open, and None where it is that of the example.
OpenAxes = Mapping[str, tuple[str | None, ...]]
IN_MEMORY = 2**28  # bytes of the parameters of a model with a folder in ``Setup.disk`` that stay in memory nevertheless


@dataclass(frozen=True)
class Activations:
    """The sizes of what the operations of a float32 pass take and return, without weights; bytes.

    largest: of one operation, the most. total: what all operations return.
    unfolded: the largest matrix that a convolution makes of its input, where it computes by a product of matrices.
    """

    largest: float = 0.0
    total: float = 0.0
    unfolded: float = 0.0

    def times(self, factor: float) -> Activations:
        """Those of a batch that is larger by this factor."""
        return Activations(*(factor * size for size in astuple(self)))


class Reference(Runner):
    """A runner that can be the reference. All methods are optional: no other framework needs them."""

    def float64_arithmetic(self) -> AbstractContextManager[Any]:
        """The context manager for a forward pass of a float64 model, whose code may ask for float32 by name."""
        return self.inference()

    def computed_weights(self, model: Any) -> dict[str, tuple[str, ...]]:
        """Weights that the model computes from others, as a weight norm does: name -> names of these."""
        return {}

    def own_buffers(self, model: Any) -> list[str]:
        """The weights that are no parameters, such as a constant filter, in layers of the model file."""
        return []

    def precisions(self, model: Any) -> Mapping[str, str]:
        """The dtype of every weight as the model holds it: native name -> for example "float64". {}: they are not accessible.

        A model that was asked for in float64 may hold other weights, because its file makes them so.
        """
        return {}

    def activations(self, model: Any, inputs: tuple[Any, ...], training: bool) -> Activations:
        """The sizes of the activations of a pass on these native inputs, without computing it.

        training: whether gradients will be computed. Raises any error where the code of the model needs values.
        """
        raise Unsupported(f"the adapter of {self.name} does not tell the sizes of activations")

    def random_operation(self, model: Any, inputs: tuple[Any, ...], folder: Path) -> str:
        """The first operation of a pass that draws random numbers, with its line in a file of ``folder``; "" when not known."""
        return ""

    def outline(self, model: Any, inputs: tuple[Any, ...]) -> Outlined:
        """The operations of a model in a pass on these native inputs."""
        raise Unsupported(f"the adapter of {self.name} does not tell the operations of a model")

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        """Set the running statistics of batch norms to those of these native inputs."""

    def export_onnx(
        self, model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool, axes: OpenAxes
    ) -> str:
        """Write the model as an ONNX file that keeps parameter names and folds no constants.

        inputs: an example of native inputs. names: (names of the inputs, names of the outputs).
        with_weights: False: the file need not hold the values of weights, which are then inputs of the graph.
        axes: the axes that the file leaves open; the sizes of all others are those of the example.
        Returns why the usual exporter could not make it; "" when it did.
        """
        raise Unsupported(f"{self.name} cannot export ONNX")
