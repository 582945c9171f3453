"""Requests that show whether a model can be compared at all; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass

from .codec import Request


@dataclass(frozen=True)
class Repeated:
    """How two passes on one input compare.

    place: the first layer, or the glue code between two layers, in which they differ; "" when they agree.
    share: rms of this difference / rms of the values.
    other_precision: what is not float64 in a model that was asked for in float64, one clause each.
    seeded: the function with which the model sets the seed of its random numbers, where they differ; "" when it sets none.
    draws: whether the model draws random numbers, or sets a seed.
    """

    place: str
    share: float
    other_precision: tuple[str, ...]
    seeded: str = ""
    draws: bool = False


@dataclass(frozen=True)
class Repeat(Request[Repeated]):
    """Run the model twice on one case, and compare every layer and every output of the two passes.

    In the second pass every global generator of random numbers gives other numbers, also after the model sets its seed.

    inputs: an array file.
    folder: a folder for the arrays of the two passes, which is needed only when they differ.
    float64: whether to run the float64 model. Refused where the framework has no float64.
    weights: an array file of the weights of the float64 model.
    seed: seed of a replay, whose float64 model is then used; None: no replay follows.
    training: whether to run it in training mode, with its dropout layers disabled.
    random: whether its outputs are known to differ by more than rounding, so that smaller differences show the place.
    """

    inputs: str
    case: int
    folder: str
    float64: bool = False
    weights: str = ""
    seed: int | None = None
    training: bool = False
    random: bool = False


@dataclass(frozen=True)
class BuiltAgain:
    """How two builds compare.

    brought: canonical names of the weights that are the same in both, and that no constant initialiser explains.
    place: the first layer, or the glue code between two layers, in which the two models differ on one input with the same
        weights; "" when they agree.
    share: rms of this difference / rms of the values.
    kept_place, kept_share: the same for two passes of the first model on one input, with passes on other inputs in between.
    computed: canonical names of the buffers that are the same in both, and that are neither all zeros nor all ones.
    """

    brought: tuple[str, ...]
    place: str
    share: float
    kept_place: str = ""
    kept_share: float = 0.0
    computed: tuple[str, ...] = ()


@dataclass(frozen=True)
class BuildAgain(Request[BuiltAgain]):
    """Build the model a second time, and compare the two models: their weights, and what they compute with the same weights.

    It must be asked before weights are loaded. The second model is dropped, and the first keeps its weights.

    inputs: an array file. folder: a folder for the arrays of two passes, which is needed only when they differ.
    """

    inputs: str
    case: int
    folder: str


@dataclass(frozen=True)
class CallAsUser(Request[bool]):
    """Call the model once on this case as its users do, and write the outputs to ``path``.

    The reply tells whether users call the model in another way than xverify does, and the call returned.

    The call may change running statistics, so nothing may be captured after it.
    """

    case: int
    path: str
