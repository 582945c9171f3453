"""Several devices of TensorFlow's processor that train one model by ``tf.distribute.MirroredStrategy``.

A replica is the model on one device: it computes the step of its part of the batch. The optimizers of Keras add the gradients of
all replicas up, so the loss of a replica is divided by their number, as ``fit`` of Keras does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import tensorflow as tf
from keras import Variable, layers
from keras.src.backend.tensorflow.optimizer import TFOptimizer

from xverify.errors import Unsupported
from xverify.framework.adapter import Array
from xverify.framework.own_step import Update, watched_calls
from xverify.frameworks.keras.base import Gradients, Keras, Pass
from xverify.frameworks.keras.training import Learner
from xverify.weights import tensorflow as weights
from xverify.workload.optimizers import Optimizer

FUSED = "--match-optimizer computes batch norms in two passes, which {}: leave it out"


class Replicas:
    """The replicas of a run. shares: of each, in a mean over the items of the batch. shown: that whose values are read."""

    def __init__(self, shares: Sequence[float]) -> None:
        """Make a device for each of them. TensorFlow may not have computed anything before."""
        devices = [tf.config.LogicalDeviceConfiguration() for _ in shares]
        tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
        self.strategy = tf.distribute.MirroredStrategy([f"/cpu:{place}" for place in range(len(shares))])
        self.shares, self.shown = shares, 0

    def joined(self, parts: Sequence[Any]) -> Any:
        """One value for ``run``. parts: what each replica has of it."""
        return self.strategy.experimental_distribute_values_from_function(
            lambda context: parts[context.replica_id_in_sync_group]
        )

    def value(self, value: Any) -> Any:
        """What the shown replica has of a value; the value itself where there is one for all."""
        values = self.strategy.experimental_local_results(value)
        return values[self.shown] if len(values) > 1 else value

    @contextmanager
    def showing(self, rank: int) -> Iterator[None]:
        """A context in which values of this replica are read."""
        before, self.shown = self.shown, rank
        try:
            yield
        finally:
            self.shown = before

    def run(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function of a step, computed by every replica. It returns a loss, several by their names, or a loss and more."""

        def step(*batch: Any) -> Any:
            found = self.strategy.run(lambda *part: function(*part), args=batch)
            if isinstance(found, Mapping):
                return {name: self._mean(loss) for name, loss in found.items()}
            return (self._mean(found[0]), *found[1:]) if isinstance(found, tuple) else self._mean(found)

        return step

    def _mean(self, loss: Any) -> Any:
        """The mean of the replicas' losses over the items of the batch."""
        losses = self.strategy.experimental_local_results(loss)
        return sum(share * each for share, each in zip(self.shares, losses)) if len(losses) > 1 else loss

    @contextmanager
    def watched_updates(self, framework: Keras, model: Any) -> Iterator[list[Update]]:
        """As Framework.watched_updates: the gradients after their reduction, as the shown replica has them."""
        trained = framework.trainable(model)
        variables = weights.variables(trained)

        def note(optimizer: Any, _strategy: Any, pairs: Sequence[tuple[Any, Any]], *_: Any) -> Update:
            given = {id(variable): framework.dense(self.value(gradient)) for gradient, variable in pairs}
            own = [each for each in variables if _id(each) in given]
            named = [each for each in trained if all(_id(piece.variable) in given for piece in each.pieces)]
            return Update(optimizer, framework.by_name(named, own, [given[_id(each)] for each in own]))

        with watched_calls([TFOptimizer], "_distributed_tf_update_step", note) as found, framework.uncompiled():
            yield found


def _id(variable: Any) -> int:
    """The id of the variable of TensorFlow that a variable of Keras has."""
    return id(variable.value if isinstance(variable, Variable) else variable)


def norms_of(model: Any) -> list[Any]:
    """The batch norms of a model that compute statistics in training."""
    found = model._flatten_layers(include_self=False) if isinstance(model, layers.Layer) else ()
    return [each for each in found if isinstance(each, layers.BatchNormalization) and each.trainable]


class ReplicatedLearner(Learner):
    """Training on several replicas. The arguments are those of ``Learner``, and ``replicas``."""

    def __init__(
        self, replicas: Replicas, framework: Keras, model: Any, wrap: Any, optimizer: Optimizer, match: bool
    ) -> None:
        norms = norms_of(model) if match else []
        if any(each.synchronized for each in norms):
            raise Unsupported(FUSED.format("are not synchronised"))
        if norms and len(set(replicas.shares)) > 1:
            raise Unsupported(FUSED.format("have one size on all replicas"))
        if optimizer.recipe:
            raise Unsupported("several devices of TensorFlow train with plain optimizers in float32, without a recipe")
        self.replicas = replicas
        with replicas.strategy.scope():
            super().__init__(framework, model, wrap, optimizer, match)

    def differentiate(self, batch: Sequence[Any]) -> Gradients:
        scale = 1.0 / len(self.replicas.shares)
        return self.framework.differentiate(Pass(self.forward, tuple(batch), self.variables, scale=scale))

    def _gradients(self, *batch: Any) -> Any:
        """The loss of a replica, and the gradients as Keras' optimizers reduce them."""
        loss, gradients = super()._gradients(*batch)
        used = [each for each in gradients if each is not None]
        reduced = iter(tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, used))
        return loss, [None if each is None else next(reduced) for each in gradients]

    def apply(self, gradients: Mapping[str, Array]) -> None:
        """The first replica has the gradients, and the others zeros, so that their sum is exact."""
        given = [tf.constant(array) for _, array in weights.native(self.trainable, gradients)]
        rest = [[tf.zeros_like(each)] * (len(self.replicas.shares) - 1) for each in given]
        joined = [self.replicas.joined([each, *zeros]) for each, zeros in zip(given, rest)]
        self.replicas.strategy.run(lambda *parts: self.optim.apply(parts, self.variables), args=tuple(joined))
