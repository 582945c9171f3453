"""Batch norms of Keras that compute as torch's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np


class MatchedNorms:
    """Makes the batch norms of a model compute as torch's do.

    Keras computes the variance as E[x²] - E[x]², and its running variance lacks the factor n/(n - 1).
    """

    def __init__(self, model: Any) -> None:
        import keras

        layers = model._flatten_layers(include_self=False) if isinstance(model, keras.layers.Layer) else ()
        self.norms = [layer for layer in layers if isinstance(layer, keras.layers.BatchNormalization)]
        self.terms: dict[int, int] = {}  # id of a norm -> n, the number of values in each of its means
        for norm in self.norms:
            norm.call = self._counting(norm, norm.call)
            norm._moments = partial(_moments, norm)

    def _counting(self, norm: Any, call: Callable[..., Any]) -> Callable[..., Any]:
        """The method ``call`` of a norm, which also sets ``terms``."""

        def counted(x: Any, *args: Any, **kwargs: Any) -> Any:
            self.terms[id(norm)] = int(np.prod(list(x.shape)) // x.shape[norm.axis])
            return call(x, *args, **kwargs)

        return counted

    def variances(self) -> list[Any]:
        """Copies of the running variances."""
        from keras import ops

        return [ops.copy(norm.moving_variance.value) for norm in self.norms]

    def correct(self, before: Sequence[Any]) -> None:
        """Correct the running variances after a step. before: the running variances before the step.

        Keras computes new = m·old + (1 - m)·biased, where m is the momentum. Torch's value is larger by (1 - m)·biased/(n - 1).
        """
        for norm, old in zip(self.norms, before):
            new = norm.moving_variance.value
            norm.moving_variance.assign(new + (new - norm.momentum * old) / max(1, self.terms[id(norm)] - 1))


def _moments(norm: Any, x: Any, mask: Any) -> tuple[Any, Any]:
    """The mean and the biased variance of each channel, in two passes. mask: without effect."""
    from keras import ops

    axes = [axis for axis in range(len(x.shape)) if axis != norm.axis % len(x.shape)]

    def mean_over(x: Any) -> Any:
        for axis in reversed(axes):  # a single float32 sum over all axes loses digits
            x = ops.mean(x, axis, keepdims=True)
        return x

    mean = mean_over(x)
    variance = mean_over(ops.square(x - mean))
    return ops.squeeze(mean, axes), ops.squeeze(variance, axes)
