"""A witness that a comparison can fail: with other weights, the outputs of the reference must leave the limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import Crashed, SubjectError, TimedOut
from ..verdict.ratios import Floor, within_limits
from ..weights import npz
from ..weights.canonical import Array
from ..worker.messages_reference import Evaluate
from ..workload import probe
from ..workload.keys import case_key
from .build import Prepared, ReferenceProcess

MOST = 2**28  # parameters; writing and loading the weights of a larger model takes longer than a verdict
CASE = 0


def unmoved(
    process: ReferenceProcess,
    prepared: Prepared,
    outputs: Mapping[str, Array],
    floors: Mapping[str, Floor],
    float64: bool,
) -> bool:
    """Whether the outputs of the first case stay within the limits when all weights are drawn anew.

    outputs, floors: of the reference with its own weights. float64: whether they are float64 outputs.
    A model without weights, and one that cannot be evaluated with others, says nothing.
    """
    if not prepared.shapes or prepared.sizes()[1] > MOST:
        return False
    space = process.space
    inputs, weights, path = (space / f"witness-{name}.npz" for name in ("inputs", "weights", "outputs"))
    _first_case(prepared.few_inputs, inputs)
    npz.save_file(probe.redrawn(npz.OnDisk(prepared.weights), process.request.seed), weights)
    question = Evaluate(str(inputs), str(path), str(weights), float64, restore=str(prepared.weights))
    try:
        process.worker.ask(question)
    except (Crashed, TimedOut):
        raise
    except SubjectError:
        return False
    found = npz.OnDisk(path)
    known = [key for key in found if key in floors and key in outputs]
    return bool(known) and all(within_limits(found[key], outputs[key], floors[key]) for key in known)


def _first_case(source: Path, target: Path) -> None:
    arrays = npz.OnDisk(source)
    first = case_key(CASE, "")
    npz.save_file({key: arrays[key] for key in arrays if key.startswith(first)}, target)
