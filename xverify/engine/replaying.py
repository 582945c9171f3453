"""Judge the layers of all candidates: each model is captured once, and its modes share the result."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..errors import SubjectError
from ..reference.layers import LayerReplay
from ..reference.replayed import ReplayedLayers
from ..reference.truth import Truth
from ..results.records import Layers

if TYPE_CHECKING:
    from .candidate import Candidate

BuildKey = tuple[str, str]  # Subject.build_key


def replay_all(
    candidates: Sequence[Candidate],
    replay: LayerReplay,
    truth: Truth,
    time_left: Callable[[], bool],
    shared: Collection[BuildKey],
    found: Mapping[BuildKey, ReplayedLayers],
) -> dict[BuildKey, ReplayedLayers]:
    """Judge the layers of every framework, once for all its modes that build the same model.

    When the capture of one mode fails, the next one is tried. Every worker is closed when it is no longer needed.

    time_left: whether there is still time for another capture.
    shared: the models that several modes of the run build. found: what was judged before, which is not judged again.
    """
    builds: dict[BuildKey, list[Candidate]] = {}
    for candidate in candidates:
        builds.setdefault(candidate.subject.build_key, []).append(candidate)
    found = dict(found)
    for key, modes in builds.items():
        alive = [each for each in modes if each.alive]
        if alive and replay.layers and key not in found:
            found[key] = _replay_build(alive, replay, truth, time_left, key in shared)
        for each in modes:
            each.call_differently(replay.prepared, truth)
            each.worker.close()
    return found


def _replay_build(
    modes: Sequence[Candidate], replay: LayerReplay, truth: Truth, time_left: Callable[[], bool], shared: bool
) -> ReplayedLayers:
    """Judge the layers of one model, captured from the first of these modes in which that succeeds.

    The mode in which a capture runs comes first, because its layers are then those of a callable that was timed.
    """
    known, failed = len(replay.layers), dict[str, str]()
    modes = sorted(modes, key=lambda each: each.subject.mode != each.subject.adapter.captured_mode)
    for mode in modes:
        if not time_left():
            reason = "--max-seconds left no time to check the layers"
            return ReplayedLayers(Layers(known=known, subject=mode.label, stopped=reason, failed=failed))
        own = mode.subject.mode == mode.subject.adapter.captured_mode
        try:
            found = mode.replay(replay, truth, borrowed=shared or not own)
        except SubjectError as error:
            failed[mode.label] = str(error)
            continue
        if found.layers.compared or found.layers.stopped:
            return replace(found, layers=replace(found.layers, failed=failed))
        failed[mode.label] = "no layer could be captured"
    if set(failed.values()) == {"no layer could be captured"}:  # the framework does not show its layers
        return ReplayedLayers(Layers(known=known, subject=modes[0].label))
    reasons = "; ".join(f"{label}: {reason}" for label, reason in failed.items())
    stopped = f"the layers could not be checked: {reasons}"
    return ReplayedLayers(Layers(known=known, subject=modes[0].label, stopped=stopped, failed=failed))
