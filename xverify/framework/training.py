"""The interface of a model that is trained: what ``Framework.training`` and ``Framework.backward`` return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ..weights.canonical import Array
from ..workload.optimizers import Optimizer

# A training batch of native tensors: the inputs in the order of the spec, then the labels; where ``Setup.objective`` is set, a
# dictionary of the targets by name takes the place of the labels.
Batch = tuple[Any, ...]

# How a float16 run scales its loss, in every framework: torch.amp.GradScaler's defaults.
SCALE = 2.0**16  # of the first step
INTERVAL = 2000  # steps with finite gradients after which the scale is doubled
LEAST_SCALE = 2.0**-14  # below it, gradients that are not finite have another reason


@dataclass(frozen=True)
class BackwardPass:
    """The results of one forward and one backward pass.

    outputs: the model's outputs, native.
    loss: the value of the loss.
    tensor_gradients: the gradient of the loss with respect to each requested tensor, native; None where there is no gradient.
    parameter_gradients: native parameter name -> gradient in canonical layout.
    """

    outputs: Any
    loss: float
    tensor_gradients: Sequence[Any]
    parameter_gradients: Mapping[str, Array]


@dataclass
class Used:
    """What a step used of its recipe: the values that reached the optimizer. Names are native, arrays in canonical layout.

    accumulated: the gradients before they were clipped; clipped: those that the optimizer was given.
    rates, decays: the learning rate and the weight decay of every parameter.
    """

    accumulated: dict[str, Array] = field(default_factory=dict)
    clipped: dict[str, Array] = field(default_factory=dict)
    rates: dict[str, float] = field(default_factory=dict)
    decays: dict[str, float] = field(default_factory=dict)


class Training:
    """A model with its optimizer, ready to be trained in one mode. ``Framework.training`` returns it.

    The weights stay in the model, and are read and written through the adapter. Parameter names are native, the same as in
    ``Framework.save_weights``.
    """

    # The names of the trainable parameters.
    names: Sequence[str]
    # The settings of the optimizer. ``variants`` names every way in which the framework's formula differs from torch's.
    optimizer: Optimizer
    # The names of parameters whose gradient is a list of rows (an embedding), in which one row may occur several times.
    sparse: Sequence[str] = ()
    # With adafactor: the canonical axes that it takes (see workload.adafactor.Factored), for every parameter of which they are not
    # the last two. The optimizer then has the variant "other axes".
    factored: Mapping[str, tuple[int, ...]] = {}

    def step(self, *batch: Any) -> Any:
        """Make one complete training step: forward pass, loss, backward pass, update. This is the call that is timed.

        batch: native inputs, then labels. Returns the loss as a native scalar.
        """
        raise NotImplementedError

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        """Compute the loss and its gradients in the same mode, without changing a parameter.

        batch: native inputs, then labels. Returns the loss, and parameter name -> gradient in canonical layout.
        """
        raise NotImplementedError

    def apply(self, gradients: Mapping[str, Array]) -> None:
        """Update the parameters once with these gradients. gradients: parameter name -> gradient in canonical layout."""
        raise NotImplementedError

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        """Read the state of the optimizer.

        Returns the number of steps made so far, and parameter name -> arrays in canonical layout, in the order of
        ``optimizer.state_names``.
        """
        raise NotImplementedError

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        """Replace the optimizer state. The arguments are what ``optimizer_state`` returns."""
        raise NotImplementedError

    # -- only with a recipe (workload.recipe) ---------------------------------------------------------------------------

    def observe(self, *batch: Any) -> Used:
        """Make one step as ``step`` does, and return what it used of the recipe. batch: native inputs, then labels."""
        raise NotImplementedError

    def averages(self) -> dict[str, Array]:
        """The moving averages of the weights, by parameter, in canonical layout; {} without them."""
        return {}

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        """Replace the moving averages. steps: number of updates that they include. The arguments are those of ``averages``."""

    def unfrozen(self) -> AbstractContextManager[object]:
        """A context in which the gradients of frozen parameters are computed, too."""
        return nullcontext()

    # -- only with a scaled loss (Recipe.scales) ------------------------------------------------------------------------

    def scaler_state(self) -> tuple[float, int]:
        """The scale of the loss, and the number of steps with finite gradients that are counted towards INTERVAL."""
        raise NotImplementedError

    def set_scaler(self, scale: float, counted: int) -> None:
        """Replace what ``scaler_state`` returns. ``set_optimizer_state`` and ``gradients`` set a scale with finite gradients."""
        raise NotImplementedError
