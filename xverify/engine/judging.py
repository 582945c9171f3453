"""Judge the outputs of a candidate, which are read from files. No process is asked for anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..reference.build import Prepared
from ..reference.replayed import ReplayedLayers
from ..reference.truth import Truth
from ..results.figures import shown_ratio
from ..results.layers import told
from ..results.records import MOST_FAULTS, Error
from ..results.verdicts import Verdict
from ..verdict.judgement import without_witness
from ..verdict.outputs import compare
from ..verdict.steadiness import Change, change
from ..weights import npz
from ..workload.spec import ModelSpec
from .stages import Built, Calls, Subject

FAR_LARGER = 20  # the errors of one fault on two inputs differ by less


def wrong_weights(built: Built, prepared: Prepared) -> Error | None:
    """The error of a candidate whose weights are not those of the reference; None when they are equal.

    Weights that a file keeps have no digest: their outputs are compared.
    """
    if built.other_weights:
        return Error(Verdict.INVALID, built.other_weights)
    expected = built.folded_digest or prepared.weights_digest
    if built.weights_digest in ("", expected):
        return None
    reason = f"other weights after loading: digest {built.weights_digest}, the reference has {expected}"
    return Error(Verdict.INVALID, reason)


def outputs(
    kept: Mapping[int, Path],
    truth: Truth,
    spec: ModelSpec,
    cases: int,
    subject: Subject,
    replayed: ReplayedLayers | None,
    calls: Calls,
) -> Error:
    """Compare the outputs of every case with the reference.

    kept: input case -> file of its outputs. cases: number of cases. replayed: the replay of its framework; None without one.
    calls: further calls on one of the inputs. When one of them differs from the first, the result is not that of the model alone.
    """
    mine = npz.OnDisk(*kept.values())
    error = replace(_compare(mine, truth, spec, range(cases), subject, replayed), unreached=truth.unreached)
    if truth.unusable:
        return replace(error, verdict=Verdict.INVALID, reason=truth.unusable)
    if error.verdict == Verdict.INVALID:
        return error
    found = repeated(kept, calls.second, truth)
    if _counts(found, error):
        return replace(error, verdict=Verdict.INVALID, reason=_randomness(error, found, calls))
    return _called_as_user(error, mine, truth, spec, subject, replayed, calls)


def _counts(change: Change, error: Error) -> bool:
    """Whether the difference between two calls is what the result is to be called.

    A result that is wrong anyway keeps its reason, unless most of its error on the input of the two calls changes from call to
    call, and no other input has a far larger error. Where a layer rounds its values to another precision, a difference in the last
    place can become one of that precision.
    """
    if error.verdict == Verdict.DIFFERENT:
        most = change.share > change.error / 2 and change.share > (error.rel_rms or 0.0) / FAR_LARGER
        return change.large or (change.random and most)
    return change.large if error.layers is not None and error.layers.rounding else change.random


def repeated(kept: Mapping[int, Path], second: Path | None, truth: Truth) -> Change:
    """How much a second call on one input differs from the first. second: the file of its outputs; None: there was none."""
    if second is None:
        return Change()
    return change(npz.OnDisk(*kept.values()), npz.OnDisk(second), truth.outputs, truth.float32, truth.noise_floors)


def later_outputs(
    kept: Mapping[int, Path], truth: Truth, spec: ModelSpec, subject: Subject, replayed: ReplayedLayers | None
) -> Error:
    """Compare the outputs of a later process run with the reference; it may have kept fewer input cases."""
    return _compare(npz.OnDisk(*kept.values()), truth, spec, sorted(kept), subject, replayed)


def _compare(
    mine: npz.OnDisk,
    truth: Truth,
    spec: ModelSpec,
    cases: Sequence[int],
    subject: Subject,
    replayed: ReplayedLayers | None,
) -> Error:
    returned = None
    if replayed is not None and not replayed.of_callable(subject.label, subject.mode):
        returned = npz.OnDisk(*replayed.returned.values())
    error = compare(
        mine,
        truth.outputs,
        truth.float32,
        spec,
        cases,
        truth.noise_floors,
        None if replayed is None else replayed.layers,
        truth.constant,
        returned,
        None if replayed is None else replayed.rounding_floors,
        "" if subject.adapter.runs_export else subject.adapter.file_name(),
        growth=truth.growth,
    )
    layers = error.layers if subject.adapter.shows_every_case else None
    if layers is not None and layers.verdict.fails and error.verdict == Verdict.IDENTICAL:
        error = replace(error, verdict=layers.verdict, reason="; ".join(told(layers.faults, MOST_FAULTS)))
    return without_witness(error, truth.growth) if truth.unmoved else error


def _randomness(error: Error, change: Change, calls: Calls) -> str:
    """Why the result of a random subject is INVALID."""
    where = f", first in {calls.random_place}" if calls.random_place else ""
    reason = f"two calls on one input differ by {change.share:.2g} of the result{where}: dropout or another random operation is on"
    if error.verdict == Verdict.DIFFERENT:
        return f"{reason}; {error.reason}"
    return f"{reason} ({shown_ratio(change.ratio, 3)} x the noise floor, limit {change.limit:g}), so no verdict on one call holds"


def _called_as_user(
    error: Error,
    mine: npz.OnDisk,
    truth: Truth,
    spec: ModelSpec,
    subject: Subject,
    replayed: ReplayedLayers | None,
    calls: Calls,
) -> Error:
    """The same, but at least DRIFT when the model gives something worse to a user who calls it without xverify's arguments.

    The verdict stays a warning, because a model with layers for data augmentation is right although such a call applies them.
    """
    if calls.user is None:
        return error
    theirs = npz.OnDisk(calls.user)
    found = _compare(theirs, truth, spec, [calls.case], subject, replayed)
    if found.verdict <= max(error.verdict, Verdict.EQUAL):
        return error
    by = change(mine, theirs, truth.outputs, truth.float32, truth.noise_floors)
    size = f" by {by.share:.2g} of the result" if by.ratio else ""
    reason = (
        f"{error.verdict} holds for the model with training=False, as predict calls it. Called as model(x), without this "
        f"argument, it differs{size} and is {found.verdict}: a layer is given training=True, or has it as its default"
    )
    earlier = f"; {error.reason}" if error.reason else ""
    return replace(error, verdict=max(error.verdict, Verdict.DRIFT), reason=reason + earlier)
