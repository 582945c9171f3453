"""What the verdict on outputs needs of a replay.

This is the verdicts on the layers, what the captured callable returned, and the noise with the roundings that explain layers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from .. import messages
from ..errors import Failed, Refused, SubjectError
from ..messages import reference as messages_reference
from ..processes.worker import Worker
from ..results.records import Layers
from ..results.verdicts import Verdict
from ..verdict.findings import Rounding
from ..verdict.layers import merged
from ..weights import npz
from ..weights.canonical import Array
from .build import Prepared, ReferenceProcess
from .layers import Captured, LayerReplay
from .truth import Spread, Truth

LAYERS = "layers"  # the folder of the captured arrays, in that of the worker


@dataclass(frozen=True)
class ReplayedLayers:
    """The result of a replay, for every subject that builds the captured model.

    returned: input case -> file with what the captured callable returned; empty when it is not known.
    roundings: those that explain some layers.
    rounding_floors: the noise floors of the outputs with the roundings that explain some layers; None when none does.
    """

    layers: Layers
    returned: Mapping[int, Path] = field(default_factory=dict)
    roundings: tuple[Rounding, ...] = ()
    rounding_floors: Mapping[str, Array] | None = None

    def of_callable(self, subject: str, mode: str) -> bool:
        """Whether these are the layers of this very callable. A capture may run in another mode than the subject."""
        return (subject, mode) == (self.layers.subject, self.layers.mode)


def capture_layers(replay: LayerReplay, worker: Worker) -> Captured:
    """Capture the layers of a subject, as far as they have to be judged at first. Raises SubjectError when that fails."""
    return replay.capture(worker, worker.folder / LAYERS, part=True)


def replay_layers(
    replay: LayerReplay,
    truth: Truth,
    worker: Worker,
    subject: str,
    captured: Captured,
    borrowed: bool,
    kept: Mapping[int, Path],
) -> ReplayedLayers:
    """Judge the captured layers of a subject. Raises SubjectError when that fails.

    subject: the subject of this worker. captured: see ``capture_layers``; its arrays are deleted at the end.
    borrowed: whether a callable that is not the captured one will be judged by these layers.
    kept: input case -> file with what the captured callable returned, as far as it is known already.
    """
    layers, roundings = _of_case(replay, worker, subject, captured)
    if not layers.compared and not layers.stopped:
        return ReplayedLayers(layers)
    returned = _returned(replay.process, replay.prepared, worker, kept) if borrowed else {}
    return _with_floors(replay, truth, ReplayedLayers(layers, returned, roundings))


def replay_further(
    replay: LayerReplay,
    truth: Truth,
    worker: Worker,
    subject: str,
    found: ReplayedLayers,
    cases: Iterable[int],
) -> ReplayedLayers:
    """Judge the layers of a subject in further input cases, too. What cannot be judged becomes a note.

    found: what was judged before.
    """
    judged, roundings, notes = [found.layers], found.roundings, []
    for case in cases:
        try:
            captured = replay.capture(worker, worker.folder / LAYERS, part=True, case=case)
            layers, more = _of_case(replay, worker, subject, captured)
        except SubjectError as error:
            notes.append(f"the layers could not be judged in input case {case}: {error}")
            continue
        judged.append(layers)
        roundings = tuple(dict.fromkeys((*roundings, *more)))
    layers = merged(judged)
    layers = replace(layers, notes=(*layers.notes, *notes))
    return _with_floors(replay, truth, replace(found, layers=layers, roundings=roundings))


def _with_floors(replay: LayerReplay, truth: Truth, found: ReplayedLayers) -> ReplayedLayers:
    """The same with the noise floors of its roundings."""
    if not found.roundings:
        return found
    floors = rounding_floors(replay.process, replay.prepared, found.roundings, truth)
    return replace(found, rounding_floors=floors)


def _of_case(
    replay: LayerReplay, worker: Worker, subject: str, captured: Captured
) -> tuple[Layers, tuple[Rounding, ...]]:
    """The verdicts on the layers of one captured pass, and the roundings that explain some. Its arrays are deleted.

    Raises SubjectError when the pass failed before its first layer, and when the replay fails.
    """
    mode, case = worker.framework.captured_mode, captured.case
    try:
        found = _right(replay, captured, subject) if captured.part else None
        if captured.part and found is None:
            captured = replay.capture(worker, worker.folder / LAYERS, case=case)
        broken = captured.reply.broken
        if not captured.reply.records:
            if broken:
                raise Failed(f"the captured pass failed: {broken}")
            return Layers(known=len(replay.layers), subject=subject, mode=mode), ()
        layers, roundings = found or replay.replay(captured, subject)
    finally:
        shutil.rmtree(worker.folder / LAYERS, ignore_errors=True)
    stopped = layers.stopped or (f"the captured pass failed: {broken}" if broken else "")
    return replace(layers, mode=mode, stopped=stopped), roundings


def _right(replay: LayerReplay, captured: Captured, subject: str) -> tuple[Layers, tuple[Rounding, ...]] | None:
    """The replay of the first items of a pass, when every layer is EQUAL in them; otherwise None, and all items decide."""
    try:
        layers, roundings = replay.replay(captured, subject)
    except Refused:  # some arrays may have the batch elsewhere than in their first axis
        return None
    right = layers.complete and layers.verdict == Verdict.EQUAL and not captured.reply.broken
    return (layers, roundings) if right else None


def _returned(
    process: ReferenceProcess, prepared: Prepared, worker: Worker, kept: Mapping[int, Path]
) -> dict[int, Path]:
    """Let the captured callable compute the other input cases, without recording layers; {} when it fails.

    kept: files of known outputs. They are copied, because the files of a worker go with its process run.
    """
    found = {}
    for case in range(process.request.cases):
        folder = process.space / f"returned-{worker.folder.name}-{case}"
        folder.mkdir()
        if case in kept:
            found[case] = Path(shutil.copy(kept[case], folder / "outputs.npz"))
            continue
        question = messages.Capture(inputs=str(prepared.inputs), case=case, folder=str(folder), wanted=())
        try:
            broken = worker.ask(question).broken
        except SubjectError as error:
            broken = str(error)
        if broken:
            return {}
        found[case] = folder / "outputs.npz"
    return found


def rounding_floors(
    process: ReferenceProcess, prepared: Prepared, roundings: tuple[Rounding, ...], truth: Truth
) -> dict[str, Array]:
    """The noise of the outputs when these roundings are in place at their layers."""
    process.phase("measuring what the explained roundings come to")
    path = process.space / f"roundings-{len(list(process.space.glob('roundings-*')))}.npz"
    process.worker.ask(
        messages_reference.MeasureRoundings(
            inputs=str(prepared.few_inputs),
            path=str(path),
            weights=str(prepared.weights),
            seed=process.request.seed,
            roundings=roundings,
        )
    )
    arrays = npz.OnDisk(path)
    few = {key: truth.outputs[key][: len(arrays[key])] if arrays[key].ndim else truth.outputs[key] for key in arrays}
    changes, floors = Spread(truth.outputs, few, arrays), truth.noise_floors or {}
    return {key: np.hypot(floors[key], changes[key]) for key in floors}
