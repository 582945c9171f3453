"""Judge the outputs of a candidate, which are read from files. No process is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..reference.truth import Truth
from ..results.records import Error, Layers
from ..results.verdicts import Verdict
from ..verdict.outputs import UNSTEADY, compare, unsteady
from ..weights import npz
from ..workload.spec import ModelSpec


def outputs(
    kept: Mapping[int, Path], truth: Truth, spec: ModelSpec, cases: int, layers: Layers | None, second: Path | None
) -> Error:
    """Compare the outputs of every case with the reference.

    kept: input case -> file of its outputs. layers: the verdicts on the layers; None without a replay.
    second: the outputs of a second call on one of the inputs. When they differ from the first, a random operation is on.
    """
    mine = npz.OnDisk(*kept.values())
    error = compare(mine, truth.outputs, truth.float32, spec, range(cases), truth.noise_floors, layers, truth.constant)
    if error.verdict != Verdict.DIFFERENT or second is None:
        return error
    share = unsteady(mine, npz.OnDisk(second))
    if share <= UNSTEADY:
        return error
    reason = f"two calls on one input differ by {share:.2g} of the result: dropout or another random operation is on"
    return replace(error, verdict=Verdict.INVALID, reason=f"{reason}; {error.reason}")


def later_outputs(kept: Mapping[int, Path], truth: Truth, spec: ModelSpec, layers: Layers | None) -> Error:
    """Compare the outputs of a later process run, which may have kept fewer input cases."""
    mine = npz.OnDisk(*kept.values())
    return compare(mine, truth.outputs, truth.float32, spec, sorted(kept), truth.noise_floors, layers, truth.constant)
