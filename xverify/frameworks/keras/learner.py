"""Which kind of training with Keras fits the settings of an optimizer."""

from __future__ import annotations

from typing import Any

from xverify.frameworks.keras.base import Keras
from xverify.frameworks.keras.scaled import ScaledLearner
from xverify.frameworks.keras.training import Learner, Wrap
from xverify.workload.optimizers import Optimizer


def learner(framework: Keras, model: Any, wrap: Wrap, optimizer: Optimizer, match: bool) -> Learner:
    """The model with its optimizer and recipe. The arguments are those of ``Learner``."""
    kind = ScaledLearner if optimizer.recipe.scales else Learner
    return kind(framework, model, wrap, optimizer, match)
