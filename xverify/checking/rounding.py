"""The rounding that is in the outputs of a file beside the noise of its graph, when they are compared with a reference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from ..results.verdicts import Verdict
from ..verdict.limits import COHERENT_RHO
from ..verdict.sizes import rms
from .computing import Computed
from .judge import Judged
from .meaning import Meaning, joined


def with_rounding(own: Meaning | None, computed: Computed, runtime: Judged, recorded: bool) -> Meaning | None:
    """The meaning of a file with the noise floors for its comparison with a reference.

    Rounding errors that have the same sign in every node add up to more than the noise model predicts. Where the runtime was found
    right nevertheless, this rounding is known, and says nothing about the conversion.

    runtime: the verdict on the runtime. recorded: whether the reference is recorded tensors. They were computed in the precision of
        the file by a program of which nothing is known, so their noise is taken to be that of the file.
    """
    if own is None or own.floors is None:
        return own
    known = dict(_known(own, computed)) if runtime.error.verdict <= Verdict.UNTESTED else {}
    return replace(own, floors=joined([own.floors, own.floors if recorded else None, known]))


def _known(own: Meaning, computed: Computed) -> Iterator[tuple[str, float]]:
    """(output, rms of its rounding) for every output whose rounding is within the limit for rounding of one sign."""
    floors: Mapping[str, float] = own.floors or {}
    for key, floor in floors.items():
        exact, found = own.outputs[key], computed.own.get(key)
        if found is None or found.shape != exact.shape or exact.dtype.kind != "f" or found.dtype.kind != "f":
            continue
        with np.errstate(invalid="ignore", over="ignore"):
            size = rms(found.astype(np.float64) - exact)
        if math.isfinite(size) and size <= COHERENT_RHO * floor:
            yield key, size
