"""Holds an explanation by another precision to what it says: it counts for a finding that it reproduces, and for no other.

Two questions are answered here. Does the rounding that explains a layer also reproduce this tensor of this call? And how far do the
explained roundings together change the outputs of the whole model?
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor, nn

from ..float64.arithmetic import float64_arithmetic
from ..float64.stepping import Models, Pause, SteppingPass, completed
from ..float64.structures import as_float64, flatten
from ..replay.difference import Difference
from ..replay.rounded_sums import ROUNDED_SUMS, output_has_rounded_sums
from ..verdict.findings import Explanation, Finding, Rounding
from ..weights.canonical import Array
from .faults import catalogue
from .faults.fault import PortFault
from .faulty_layer import faulty_outputs


def with_rounding(models: Models, known: Explanation | None, difference: Difference, args: Any) -> Finding:
    """Return the finding on an output, with the rounding that reproduces this output when there is one.

    known: the explanation of the layer. When it is a rounding, it is tried first, and then every other precision. All that
        reproduce the output are named: numbers of the size of 1 are the same in float16 and in TF32.
    args: the arguments of this call, in float64.
    """
    finding = difference.finding
    if known is None or not known.rounding or finding.reason is not None:
        return finding
    layer = models.layers[finding.layer]
    if known.kind == ROUNDED_SUMS.kind:
        found = output_has_rounded_sums(layer, as_float64(flatten(args)[0]), difference)
        return replace(finding, rounding=ROUNDED_SUMS) if found else finding
    fitting: list[PortFault] = []
    for fault in sorted(_roundings(layer), key=lambda fault: fault.kind != known.kind):
        outputs = faulty_outputs(models, layer, fault, args)[finding.index : finding.index + 1]
        if any(each.shape == difference.captured.shape and difference.is_equal_to(each) for each in outputs):
            fitting.append(fault)
    if not fitting:
        return finding
    (precision, _, part), *others = (fault.kind.partition(" ") for fault in fitting)
    names = " or ".join([precision, *(other for other, _, same in others if same == part)])
    says = fitting[0].says.replace(precision, names)
    return replace(finding, rounding=Explanation(fitting[0].kind, says, rounding=True))


def _roundings(layer: nn.Module) -> list[PortFault]:
    return [fault for fault in catalogue.explanatory_faults(layer) if fault.rounding]


# -- the whole model --------------------------------------------------------------------------------------------------


Faults = Mapping[str, Mapping[int, PortFault]]  # layer -> call -> the rounding there


def _outputs(models: Models, faults: Faults, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs of the reference in float64, with roundings at some calls of its layers.

    A call after the last one that is listed, which another input may lead to, has the rounding of the last one.
    """

    def answer(pause: Pause) -> Any:
        layer, known = models.layers[pause.layer], faults.get(pause.layer, {})
        fault = known.get(pause.call, known[max(known)] if known and pause.call > max(known) else None)
        if fault is None:
            return models.compute(layer, pause.args)
        return fault.forward(layer, models.forwards[layer], *pause.args[0], **pause.args[1])

    given = [as_float64(tensor) for tensor in inputs]
    return models.in_order(completed(SteppingPass(models.float64_model, given, float64_arithmetic), answer))


def output_changes(
    models: Models, roundings: Iterable[Rounding], inputs: Sequence[Tensor], names: Sequence[str]
) -> Mapping[str, Array]:
    """Output -> the change of every value when these roundings are in place. For whole numbers, the share of values that change."""
    faults: dict[str, dict[int, PortFault]] = {}
    for each in roundings:
        found = [fault for fault in _roundings(models.layers[each.layer]) if fault.kind == each.kind]
        if found:
            faults.setdefault(each.layer, {})[each.call] = found[0]
    exact, rounded = _outputs(models, {}, inputs), _outputs(models, faults, inputs)
    return {name: _change(y, other) for name, y, other in zip(names, exact, rounded)}


def _change(exact: Tensor, rounded: Tensor) -> Array:
    if not exact.is_floating_point():
        return np.asarray(float((exact != rounded).double().mean()))
    change: Array = (rounded - exact).abs().nan_to_num(0.0, 0.0, 0.0).numpy()
    return change
