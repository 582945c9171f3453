"""The noise of a whole graph: how much rounding at every node can change its outputs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from torch import Tensor

from ...verdict.limits import mean_with_doubt
from ..perturbation import Arithmetic, Noise
from ..tensors import mean_squares, rms
from .evaluation import EXACT, OWN, Evaluation, Pass, given
from .kinds import QUANTISING, has_float
from .model import Graph, Node
from .values import Named, Value, convert, in_range, tensor, unit_roundoff

SAMPLES = 4  # perturbed evaluations
DECISION = 10.0  # noise floors; a decision with a smaller margin may fall the other way


@dataclass(frozen=True)
class OutputNoise:
    """The exact value of one output of a graph, and its noise.

    exact: in float64; whole numbers in their own type.
    dtype: the type that the file declares.
    own: the same output in the types of the file, computed by torch; None when it was not asked for.
    floor: rms of the change by rounding at every node, and of the error of ``own``. 0 for whole numbers.
    uncertain: for whole numbers, where rounding may change the decision; None for other outputs.
    value: the output in every pass.
    """

    exact: Any
    dtype: np.dtype[Any] | None
    own: Any
    floor: float
    uncertain: Any = None
    value: Value | None = None

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
        residual = rms(found - exact)
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
        return OutputNoise(value.exact, value.dtype, own, 0.0, uncertain)
    # Outputs in float64 may be so small or so large that their squares are 0 or infinite.
    scale = _scale(tensor(value.exact))
    exact = tensor(value.exact) / scale
    axis = max(0, exact.dim() - 1)
    squares = mean_with_doubt(
        [
            float(mean_squares(tensor(data) / scale, axis, exact=exact).mean()) if exact.numel() else 0.0
            for each, data in zip(passes, value.by_pass)
            if each.arithmetic is Arithmetic.PERTURBED
        ]
    )
    if own is not None and exact.numel():
        squares += float(mean_squares(tensor(convert(own, np.float64)) / scale, axis, exact=exact).mean())
    # The output is rounded to its type, also where nothing before it is: a window of Hann follows from a whole number.
    squares += unit_roundoff(value.dtype) ** 2 / 3 * _mean_square(exact)
    return OutputNoise(value.exact, value.dtype, own, math.sqrt(squares) * scale)


def _scale(exact: Tensor) -> float:
    """What to divide an output by, so that squares of its values can be summed; 1.0 for outputs of usual sizes."""
    largest = float(exact.abs().nan_to_num(0.0, 0.0, 0.0).max()) if exact.numel() else 0.0
    return largest if largest and not 1e-60 < largest < 1e60 else 1.0


def _mean_square(exact: Tensor) -> float:
    """The mean square of the finite values."""
    finite = exact[exact.isfinite()]
    return float(finite.square().mean()) if finite.numel() else 0.0


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
    return Value((np.where(np.isfinite(moved), moved, value.exact),), value.dtype)
