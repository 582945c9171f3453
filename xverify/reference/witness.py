"""A witness that a comparison can fail: with other weights, the outputs of the reference must leave the limits."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import Refused
from ..messages.reference import Evaluate
from ..verdict import ratios
from ..verdict.ratios import Floor, first_finite
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import only_case
from .build import Prepared, ReferenceProcess

MOST = 2**28  # parameters; writing and loading the weights of a larger model takes longer than a verdict


def unmoved(
    process: ReferenceProcess,
    prepared: Prepared,
    outputs: Mapping[str, Array],
    floors: Mapping[str, Floor],
) -> bool:
    """Whether the outputs of a case stay within the limits when all weights are drawn anew: the first that has finite values.

    outputs, floors: of the reference with its own weights. With others it computes in float32, which is several times as fast.
    A model without weights, and one that cannot be evaluated with others, says nothing.
    """
    if not prepared.shapes or prepared.sizes()[1] > MOST:
        return False
    case = first_finite(outputs)
    if case is None:
        return False
    space = process.space
    inputs, weights, path = (space / f"witness-{name}.npz" for name in ("inputs", "weights", "outputs"))
    npz.save_file(only_case(npz.OnDisk(prepared.few_inputs), case), inputs)
    npz.save_file(probe.redrawn(npz.OnDisk(prepared.weights), process.request.seed), weights)
    question = Evaluate(str(inputs), str(path), str(weights), float64=False, restore=str(prepared.weights))
    try:
        process.worker.ask(question)
    except Refused:
        return False
    return ratios.unmoved(npz.OnDisk(path), case, outputs, floors)
