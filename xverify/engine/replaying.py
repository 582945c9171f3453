"""Judge the layers of all candidates: each model is captured once, and its modes share the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from dataclasses import replace
from itertools import takewhile, zip_longest

from ..errors import SubjectError
from ..reference.layers import Captured, LayerReplay
from ..reference.replayed import ReplayedLayers
from ..reference.truth import Truth
from ..results.records import Layers
from .budget import Clock
from .candidate import Candidate

BuildKey = tuple[str, str]  # Subject.build_key


def replay_all(
    candidates: Sequence[Candidate],
    replay: LayerReplay,
    truth: Truth,
    clock: Clock,
    counts: Mapping[BuildKey, int],
    found: dict[BuildKey, ReplayedLayers],
    background: Executor,
) -> None:
    """Judge the layers of every framework, once for all its modes that build the same model.

    When the capture of one mode fails, the next one is tried. Every worker is closed when it is no longer needed. While the
    reference judges one model, the next one is captured, and the last calls of the one before are made.

    clock: whether there is time for another capture.
    counts: how many modes of the run build a model, also modes that are not among the candidates.
    found: what was judged before, which is not judged again unless the candidates need the layers of further input cases. What
    is judged now is added to it at once, so that an interruption loses none of it.
    """
    builds: dict[BuildKey, list[Candidate]] = {}
    for candidate in candidates:
        builds.setdefault(candidate.subject.build_key, []).append(candidate)
    wanted = [key for key, modes in builds.items() if replay.layers and _is_wanted(modes, truth, found.get(key))]

    def time_left() -> bool:
        return clock.left is None or clock.left > 0

    def capture(key: BuildKey | None) -> Future[Captured] | None:
        modes = builds[key] if key is not None else []
        return background.submit(_tried(modes)[0].capture, replay) if modes and time_left() else None

    def close(modes: Sequence[Candidate]) -> Future[None]:
        return background.submit(_close, modes, replay, truth)

    closed = [close(modes) for key, modes in builds.items() if key not in wanted]
    captured = capture(wanted[0]) if wanted else None
    for key, following in zip_longest(wanted, wanted[1:]):
        if captured is not None:
            wait([captured])
        coming = capture(following)
        found[key] = _replay_build(_tried(builds[key]), replay, truth, time_left, counts[key], captured)
        closed.append(close(builds[key]))
        captured = coming
    for each in closed:
        each.result()


def _is_wanted(modes: Sequence[Candidate], truth: Truth, found: ReplayedLayers | None) -> bool:
    """Whether the layers of these modes have to be judged. found: what was judged before.

    Those of an exported decoder are only where its outputs differ: it computes other operations than the layers of its code.
    """
    alive = [each for each in modes if each.alive]
    if alive and all(each.request.decodes and each.subject.runs_export and each.near(truth) for each in alive):
        return False
    return bool(alive) and (found is None or bool(_further(modes, truth, found)))


def _close(modes: Sequence[Candidate], replay: LayerReplay, truth: Truth) -> None:
    """Make the last calls of these modes, and close their workers, unless they still decode."""
    made = None
    for each in modes:
        made = each.call_differently(replay.prepared, truth, made)
        if not each.request.decodes:
            each.worker.close()


def _further(modes: Sequence[Candidate], truth: Truth, found: ReplayedLayers) -> list[int]:
    """The input cases in which the layers of these modes were not judged, and have to be. found: what was judged."""
    if not found.layers.compared:
        return []
    alive = [each for each in modes if each.alive]
    away = {case for each in alive for case in each.cases_away(truth)}
    if any(each.subject.adapter.shows_every_case for each in alive):
        away = set(range(alive[0].request.cases))
    return sorted(away - set(found.layers.cases))


def _tried(modes: Sequence[Candidate]) -> list[Candidate]:
    """The modes in the order in which their captures are tried.

    The mode in which a capture runs comes first, because its layers are then those of a callable that was timed.
    """
    alive = [each for each in modes if each.alive]
    return sorted(alive, key=lambda each: each.subject.mode != each.subject.adapter.captured_mode)


def _replay_build(
    modes: Sequence[Candidate],
    replay: LayerReplay,
    truth: Truth,
    time_left: Callable[[], bool],
    count: int,
    captured: Future[Captured] | None,
) -> ReplayedLayers:
    """Judge the layers of one model, captured from the first of these modes in which that succeeds.

    count: of the modes of the run that build it. captured: the capture of the first mode; None when there was no time for it.
    """
    known, failed = len(replay.layers), dict[str, str]()
    for mode in modes:
        if captured is None and not time_left():
            reason = "--max-seconds left no time to check the layers"
            return ReplayedLayers(Layers(known=known, subject=mode.label, stopped=reason, failed=failed))
        own = mode.subject.mode == mode.subject.adapter.captured_mode
        try:
            first, captured = captured, None
            arrays = mode.capture(replay) if first is None else first.result()
            # Where all outputs are near the exact ones, no verdict asks what the captured callable returned.
            near = len(modes) == count and all(each.near(truth) for each in modes)
            borrowed = (count > 1 or not own) and not near
            replayed = mode.replay(replay, truth, arrays, borrowed)
            further = _further(modes, truth, replayed)
            if further and time_left():
                replayed = mode.replay_further(replay, truth, replayed, takewhile(lambda _: time_left(), further))
                late = [] if time_left() else sorted({*further} - {*replayed.layers.cases})
                if late:
                    says = f"--max-seconds left no time to judge the layers in input cases {', '.join(map(str, late))}"
                    replayed = replace(replayed, layers=replace(replayed.layers, notes=(*replayed.layers.notes, says)))
        except SubjectError as error:
            failed[mode.label] = str(error)
            continue
        if replayed.layers.compared or replayed.layers.stopped:
            return replace(replayed, layers=replace(replayed.layers, failed=failed))
        failed[mode.label] = "no layer could be captured"
    if set(failed.values()) == {"no layer could be captured"}:  # the framework does not show its layers
        return ReplayedLayers(Layers(known=known, subject=modes[0].label))
    reasons = "; ".join(f"{label}: {reason}" for label, reason in failed.items())
    stopped = f"the layers could not be checked: {reasons}"
    return ReplayedLayers(Layers(known=known, subject=modes[0].label, stopped=stopped, failed=failed))
