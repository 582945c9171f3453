"""A model on JAX as a pure function of its variables, and one pass of it with the gradients of its layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.adding import Adding
from xverify.framework.capture import TrainingRecorder
from xverify.framework.structures import without_classes
from xverify.framework.training import Batch
from xverify.weights.flax_layout import NamedWeight, join

# A function of the outputs and targets; see Framework.loss.
LossOf = Callable[[Any, Any], Any]
# Makes a context around the pass of a copy of the model, for example one that records its layers.
Around = Callable[[Any], AbstractContextManager[Any]]


def plainly(model: Any) -> AbstractContextManager[Any]:
    """Nothing around a pass."""
    return nullcontext()


class Function:
    """A model as a pure function of its variables and inputs, in training mode.

    trained: the weights that a training step changes. One weight may be several variables.
    """

    trained: Sequence[NamedWeight]

    def present(self) -> tuple[list[Any], list[Any]]:
        """The values of the variables that are trained, and of the others that a pass changes, such as running statistics."""
        raise NotImplementedError

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        """Set the variables of the model. The arguments are what ``present`` returns."""
        raise NotImplementedError

    def by_name(self, values: Sequence[Any]) -> dict[str, Array]:
        """Canonical name -> canonical array, for arrays of the variables that are trained. values: in the order of ``present``."""
        each = iter(values)
        return {one.name: join(one, [np.asarray(next(each)) for _ in one.parts]) for one in self.trained}

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        """The outputs, and the other variables after the pass. The model itself stays as it is."""
        raise NotImplementedError


class Partial(Function):
    """A function some of whose weights are not trained. They are the last of its other variables.

    freezes: whether the weight of this name is one of them.
    """

    def __init__(self, function: Function, freezes: Callable[[str], bool]) -> None:
        self.function = function
        self.trained = [each for each in function.trained if not freezes(each.name)]
        self.frozen = [freezes(each.name) for each in function.trained for _ in each.parts]

    def present(self) -> tuple[list[Any], list[Any]]:
        trained, others = self.function.present()
        return self._chosen(trained, False), [*others, *self._chosen(trained, True)]

    def write(self, trained: Sequence[Any], others: Sequence[Any]) -> None:
        self.function.write(*self._whole(trained, others))

    def __call__(
        self, trained: Sequence[Any], others: Sequence[Any], inputs: Sequence[Any], around: Around = plainly
    ) -> tuple[Any, list[Any]]:
        every, own = self._whole(trained, others)
        outputs, own = self.function(every, own, inputs, around)
        return outputs, [*own, *self._chosen(every, True)]

    def _chosen(self, values: Sequence[Any], frozen: bool) -> list[Any]:
        return [value for value, each in zip(values, self.frozen) if each == frozen]

    def _whole(self, trained: Sequence[Any], others: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """What the function itself takes: (all its weights, its other variables)."""
        count = len(others) - sum(self.frozen)
        of_kind = {False: iter(trained), True: iter(others[count:])}
        return [next(of_kind[each]) for each in self.frozen], list(others[:count])


def captured_step(
    function: Function, batch: Batch, record: Callable[[Any], Around], recorder: TrainingRecorder, loss_of: LossOf
) -> tuple[Any, float, Mapping[str, Array]]:
    """Record the layers in one pass, and compute the gradients of what was recorded in another one.

    JAX has no gradient with respect to a value inside of a function. So the second pass adds a zero to each recorded tensor, and
    the gradient is the one with respect to this zero.

    record: makes a context that records the layers of a model with a recorder. loss_of: ``Framework.loss``.
    """
    import jax

    trained, others = function.present()
    function(trained, others, batch[:-1], record(recorder))
    zeros = [jax.numpy.zeros_like(tensor) for tensor in recorder.tensors()]

    def loss(trained: Sequence[Any], zeros: Sequence[Any]) -> tuple[Any, Any]:
        outputs, _ = function(trained, others, batch[:-1], record(Adding(zeros, _floats)))
        return loss_of(outputs, batch[-1]), without_classes(outputs)

    differentiated = jax.value_and_grad(loss, argnums=(0, 1), has_aux=True)
    (value, outputs), (gradients, tensor_gradients) = differentiated(trained, zeros)
    recorder.take(tensor_gradients)
    return outputs, float(value), function.by_name(gradients)


def _floats(tensor: Any) -> bool:
    """Whether a tensor has floating-point numbers; a key of random numbers has none."""
    import jax

    return bool(jax.numpy.issubdtype(tensor.dtype, jax.numpy.floating))
