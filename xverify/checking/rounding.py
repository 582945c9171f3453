"""The rounding that is in the outputs of a file beside the noise of its graph, when they are compared with a reference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ..results.verdicts import Verdict
from ..verdict.limits import COHERENT_RHO
from ..verdict.ratios import Floor, noise_ratios
from .computing import Computed
from .judge import Judged
from .meaning import Floors, Meaning, joined


def with_rounding(own: Meaning | None, computed: Computed, runtime: Judged, recorded: bool) -> Meaning | None:
    """Return the meaning of a file with the noise floors for its comparison with a reference.

    Rounding errors that have the same sign in every node add up to more than the noise model predicts. When the runtime is right,
    its rounding says nothing about the conversion, so it is added to the noise floors.

    runtime: the verdict on the runtime.
    recorded: whether the reference is recorded tensors. Nothing is known of the program that computed them in the precision of the
        file, so they get the noise of the file.
    """
    if own is None or own.floors is None:
        return own
    known = dict(_known(own, computed)) if runtime.error.verdict <= Verdict.UNTESTED else {}
    return replace(own, floors=joined([own.floors, own.floors if recorded else None, known]))


def _known(own: Meaning, computed: Computed) -> Iterator[tuple[str, Floor]]:
    """(output, rounding of its values) for every output whose rounding is within the limit for rounding of one sign."""
    floors: Floors = own.floors or {}
    for key in floors:
        exact, own_output = own.outputs[key], computed.own.get(key)
        if (
            own_output is None
            or own_output.shape != exact.shape
            or exact.dtype.kind != "f"
            or own_output.dtype.kind != "f"
        ):
            continue
        if noise_ratios(own_output, exact, exact, floors[key]).whole <= COHERENT_RHO:
            with np.errstate(invalid="ignore", over="ignore"):
                yield key, np.nan_to_num(np.abs(own_output.astype(np.float64) - exact))
