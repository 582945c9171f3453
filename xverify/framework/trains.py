"""What a framework does so that it can be trained, and so that the gradients within its models can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..errors import Unsupported
from ..workload.losses import Loss
from ..workload.operations import Operations
from ..workload.optimizers import Optimizer
from .capture import TrainingRecorder, recording
from .layered import ShowsLayers
from .runner import Array
from .structures import only_output
from .training import BackwardPass, Batch, Training


@dataclass(frozen=True)
class Setup:
    """What a run asks for, beside the model itself.

    objective: computes the loss from the outputs and a dictionary of targets; None: the mean cross-entropy of the only output.
    precision: in which models compute in training.
    loss_scale: what ``backward`` multiplies the loss by; the gradients that it returns are divided by it again.
    zeros: returns zeros in place of the native inputs, in float64 where it is given True; None: nothing is known about the inputs.
        ``build`` calls a model with them that has no weights before its first call.
    inputs: the names of the inputs, in the order of the spec.
    cache: input of a decoder's graph -> its output that is this input at the next call, where their names do not tell.
    disk: a folder in which models keep large parameters; None: in memory. Only a reference needs it.
    """

    objective: Callable[[Any, Mapping[str, Any]], Any] | None = None
    precision: str = "float32"
    loss_scale: float = 1.0
    zeros: Callable[[bool], tuple[Any, ...]] | None = None
    inputs: tuple[str, ...] = ()
    cache: Mapping[str, str] = field(default_factory=dict)
    disk: Path | None = None


class Trains(ShowsLayers):
    """A runner that trains its models. All methods are optional."""

    # Whether ``training`` is implemented. ``--task train`` runs such frameworks when the user names no subject.
    trains: ClassVar[bool] = False
    # Whether ``training`` takes a recipe (workload.recipe): parameter groups, clipping, a schedule and the like.
    takes_recipe: ClassVar[bool] = False
    # The precisions below float32 in which ``training`` can compute: "bfloat16", "float16".
    mixed: ClassVar[tuple[str, ...]] = ()
    # Why ``mixed`` lacks a precision that the framework has a setting for, as a sentence; '' where there is nothing to say.
    not_mixed: ClassVar[str] = ""
    # What the run asks for; ``set_up`` replaces it.
    setup: Setup = Setup()

    @property
    def steps_block(self) -> bool:
        """Whether a training step returns when it has computed all that it changes, so that timed blocks leave ``wait`` out."""
        return bool(self.blocking)

    def set_up(self, setup: Setup) -> None:
        """Take what the run asks for, for everything that follows. A worker calls it before ``build`` and ``training``."""
        self.setup = setup

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        """Prepare the model for training in this mode, with the loss of ``loss``.

        The weights of the model may be different afterwards; they are set before the first step.

        batch: an example. optimizer: its name and settings, in torch's terms.
        match: False: use the framework's own optimizer. True: use an exact equivalent of torch's formulas, for the optimizer and
            for running statistics, made of the framework's own operations. With variants in the settings, the formula
            of the optimizer is this wrong one, which a mutation plants.
        Raises Unsupported when the framework cannot do that.
        """
        raise Unsupported(f"the adapter of {self.name} does not support training")

    def loss(self, outputs: Any, targets: Any) -> Any:
        """The loss of a training step as a native scalar. targets: the last entry of a Batch."""
        if self.setup.objective is None:
            return self.cross_entropy(only_output(outputs), targets)
        return self.setup.objective(outputs, targets)

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        raise Unsupported(f"the adapter of {self.name} does not support training")

    @property
    def operations(self) -> Operations:
        """The array operations of the framework, of which named losses and exact equivalents of optimizers are made."""
        raise Unsupported(
            f"the adapter of {self.name} trains with the cross-entropy of one output, or with a loss of the model file"
        )

    def loss_value(self, loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
        """The value of a named loss without its weight, as a native scalar; see workload.loss_formulas.value."""
        from ..workload.loss_formulas import value  # the parent needs no formulas

        return value(self.operations, loss, x, t, axis, lengths)

    def alias(self, tensor: Any) -> Any:
        """Copy a tensor into a new node of the graph, so that gradients with respect to the two can be told apart."""
        raise Unsupported(f"the adapter of {self.name} does not compute gradients within a model")

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        """Run one eager forward and backward pass in training mode, without an update.

        tensors: function that is called after the forward pass, and returns the tensors whose gradients are wanted.
        """
        raise Unsupported(f"the adapter of {self.name} does not compute gradients within a model")

    def capture_training(
        self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder
    ) -> tuple[Any, float, Mapping[str, Array]]:
        """Run one forward and backward pass, and record the inputs, the outputs and their gradients of layers.

        names: native name -> canonical name of each layer to record.
        Returns the model's outputs, the loss, and native parameter name -> gradient in canonical layout.
        """
        with recording(self._differentiated_layers(model, names), self.layer_method, recorder):
            passed = self.backward(model, batch, recorder.tensors)
        recorder.take(passed.tensor_gradients)
        return passed.outputs, passed.loss, passed.parameter_gradients
