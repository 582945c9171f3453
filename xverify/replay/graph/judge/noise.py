"""The noise of a whole graph: how much rounding at every node can change its outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ....float64.perturbation import Arithmetic, Noise
from ....verdict.local import sampled
from ....verdict.sizes import rms
from ..evaluation import EXACT, OWN, Evaluation, Pass, given
from ..kinds import QUANTISING, has_float
from ..model import Graph, Node
from ..values import Named, Value, convert, in_range, tensor, unit_roundoff

SAMPLES = 4  # perturbed evaluations
DECISION = 10.0  # noise floors; a decision with a smaller margin may fall the other way


@dataclass(frozen=True)
class OutputNoise:
    """The exact value of one output of a graph, and its noise.

    exact: in float64; whole numbers in their own type.
    dtype: the type that the file declares.
    own: the same output in the types of the file, computed by torch; None when it was not asked for.
    noise: of every value, the rms of the change by rounding at every node and of the error of ``own``. For whole numbers 0, and
        infinity where rounding may change the decision.
    uncertain: for whole numbers, where rounding may change the decision; None for other outputs.
    value: the output in every pass.
    """

    exact: Any
    dtype: np.dtype[Any] | None
    own: Any
    noise: Any
    uncertain: Any = None
    value: Value | None = None

    @property
    def floor(self) -> float:
        """rms of the noise of the values that have one."""
        return rms(self.noise)

    def rho(self, output: Any) -> float:
        """The residual of an output of the same shape / the noise floor. Whole numbers have 0 or infinity.

        An infinite or missing value that the exact output has, too, does not count.
        """
        output = np.asarray(output)
        if output.shape != np.shape(self.exact):
            return math.inf
        if np.asarray(self.exact).dtype != np.float64:
            differs = self.exact != output
            return 0.0 if not np.any(differs & ~self.uncertain if self.uncertain is not None else differs) else math.inf
        exact, found = in_range(tensor(self.exact), self.dtype), tensor(output).double()
        if bool((exact.isfinite() != found.isfinite()).any()) or not exact.nan_to_num(0.0).isfinite().any():
            return math.inf
        if not bool((exact.isfinite() | (exact == found) | (exact.isnan() & found.isnan())).all()):
            return math.inf
        residual = rms((found - exact).numpy())
        return 0.0 if residual == 0.0 else residual / self.floor if self.floor > 0.0 else math.inf


def noise(
    graph: Graph,
    inputs: Mapping[str, Any],
    seed: int = 0,
    samples: int = SAMPLES,
    own: bool = True,
    approximated: Collection[str] = (),
    fed: Mapping[str, Value] | None = None,
) -> dict[str, OutputNoise]:
    """The exact outputs of a graph with their noise. One pass evaluates the graph exactly and with perturbations, side by side.

    inputs: an array for each input by name.
    samples: number of perturbed evaluations.
    own: whether to evaluate the graph in its own types, too; that error is a part of the noise floor.
    approximated: names of nodes whose error is that of an approximation; see ``approximations``.
    fed: inputs that have a value of their own in every pass, in the place of those of ``inputs``: outputs of an earlier call of
        this function with the same passes.
    """
    passes = [
        EXACT,
        *(Pass(Arithmetic.PERTURBED, Noise(seed + index)) for index in range(samples)),
        *([OWN] if own else []),
    ]
    uncertain: Named = {}

    def after(node: Node, arguments: Sequence[Value | None], outputs: list[Value]) -> list[Value]:
        for index, (name, value) in enumerate(zip(node.outputs, outputs)):
            if name in graph.outputs and not value.is_float and isinstance(value.exact, np.ndarray):
                uncertain[name] = _uncertain(node, arguments, value, index, samples)
        return outputs

    evaluation = Evaluation(passes, rounding=True, after=after, approximated=approximated)
    found = evaluation.run(graph, {**given(evaluation, graph, inputs), **(fed or {})})
    return {
        name: replace(_summary(value, passes, uncertain.get(name)), value=value)
        for name, value in zip(graph.outputs, found)
        if value is not None
    }


def _summary(value: Value, passes: Sequence[Pass], uncertain: Any) -> OutputNoise:
    own = value.by_pass[-1] if passes[-1].arithmetic is Arithmetic.FLOAT32 else None
    if not isinstance(value.exact, np.ndarray) or not value.is_float:
        shape = np.shape(value.exact) if isinstance(value.exact, np.ndarray) else ()
        noise = np.zeros(shape) if uncertain is None else np.where(uncertain, np.inf, 0.0)
        return OutputNoise(value.exact, value.dtype, own, noise, uncertain)
    exact = value.exact
    samples = [data for each, data in zip(passes, value.by_pass) if each.arithmetic is Arithmetic.PERTURBED]
    # The output is rounded to its type, also where nothing before it is: a window of Hann follows from a whole number.
    noise = np.hypot(sampled(exact, samples), unit_roundoff(value.dtype) / math.sqrt(3) * np.abs(exact))
    if own is not None:
        with np.errstate(invalid="ignore"):
            noise = np.hypot(noise, convert(own, np.float64) - exact)
    return OutputNoise(exact, value.dtype, own, noise)


def _uncertain(node: Node, arguments: Sequence[Value | None], value: Value, index: int, samples: int) -> Any:
    """Where a decision changes when the noise of its inputs is DECISION times as large."""
    changes = np.zeros(np.shape(value.exact), bool)
    if node.op in QUANTISING:
        for each in value.by_pass[1 : 1 + samples]:
            changes |= each != value.exact
        return changes
    if not has_float(arguments):
        return changes
    for sample in range(1, 1 + samples):
        for size in (DECISION, -DECISION):
            moved = [_amplified(argument, sample, size) for argument in arguments]
            again = Evaluation([EXACT]).step(node, moved, None)  # type: ignore[arg-type]  # no subgraph decides
            if np.shape(again[index].exact) == changes.shape:
                changes |= again[index].exact != value.exact
    return changes


def _amplified(value: Value | None, sample: int, size: float) -> Value | None:
    if value is None or not value.is_float or not isinstance(value.exact, np.ndarray):
        return None if value is None else Value((value.exact,), value.dtype)
    with np.errstate(invalid="ignore"):
        moved = value.exact + size * (value.by_pass[sample] - value.exact)
    # A value that is finite in the exact pass alone is undetermined: it may be above any other, or below.
    beyond = np.where(np.isfinite(value.exact), np.copysign(np.inf, size), value.exact)
    return Value((np.where(np.isfinite(moved), moved, beyond),), value.dtype)
