"""What a run does not show, one fact in each line under the table. The whole account is the footer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ..results.records import Result
from .bounded import bounded, in_short
from .conditions import command
from .notes import unreached, why_untimed

HEADING, MORE = "Limits:", "--details prints more"
SHOWN = 3  # places that no input case reached


def of_run(result: Result) -> list[str]:
    """The lines about a run."""
    return _lines(_of_tasks(result, _of_task))


def of_check(result: Result) -> list[str]:
    """The lines about a check of model files."""
    return _lines(
        [
            f"compared with {result.reference.framework}",
            *_nodes(result),
            *unreached(result, SHOWN),
            *(_speed(result) if any(row.speed for row in result.rows) else ()),
        ]
    )


def too_noisy(result: Result) -> list[str]:
    """Why no speed of a task counts, and what is known of the speeds in spite of it; nothing where they count."""
    return _of_tasks(result, _too_noisy)


def too_noisy_in_short(result: Result) -> list[str]:
    """A sentence for each task whose speeds do not count."""
    return _of_tasks(result, _in_short)


def _of_tasks(result: Result, facts_of: Callable[[Result], Iterator[str]]) -> list[str]:
    """The facts about all tasks. One that does not hold for all of them begins with the name of the task."""
    tasks_of: dict[str, list[str]] = {}
    for part in result.by_task():
        for fact in facts_of(part):
            tasks_of.setdefault(fact, []).extend(part.tasks)
    return [
        f"{', '.join(tasks)}: {fact}" if len(tasks) < len(result.tasks) else fact for fact, tasks in tasks_of.items()
    ]


def _too_noisy(result: Result) -> Iterator[str]:
    if _is_noisy(result):
        yield f"TOO NOISY for a verdict on speed: {result.noise.refusal}"
        yield from bounded(result)


def _in_short(result: Result) -> Iterator[str]:
    if _is_noisy(result):
        yield "; ".join(filter(None, ["TOO NOISY for a verdict on speed", in_short(result)]))


def _is_noisy(result: Result) -> bool:
    return bool(result.noise.dropped and result.noise.refusal)


def _lines(facts: list[str]) -> list[str]:
    """The facts below each other. The heading stands before the first one."""
    return [f"{'' if index else HEADING:{len(HEADING)}} {fact}" for index, fact in enumerate([*facts, MORE])]


def _inputs(result: Result, one: str, several: str) -> str:
    inputs = result.inputs
    kind = f" ({inputs.kind})" if inputs.kind else ""
    return f"{inputs.cases} {one if inputs.cases == 1 else several}{kind}"


def _of_task(result: Result) -> Iterator[str]:
    """The facts about one task."""
    reference = result.reference
    trained = "train" in result.tasks
    if result.weights.digest:
        names = ("batch", "batches") if trained else ("input case", "input cases")
        yield _inputs(result, *names)
        yield result.weights.source
    if not reference.random and reference.precision in ("float32", "mixed"):
        yield f"the reference is not in float64{' in every part' if reference.precision == 'mixed' else ''}"
    if result.weights.digest and not trained and not (reference.random or reference.inconsistent):
        yield from _layers(result)
    if reference.untested:
        known = len(reference.untested) + reference.tested
        yield f"a fault in {len(reference.untested)} of {known} weights and constants would not show (UNTESTED)"
    yield from unreached(result, SHOWN)
    yield from _speed(result)


def _layers(result: Result) -> Iterator[str]:
    """The subjects whose layers were not all judged one by one."""
    judged = [row.error.layers for row in result.timed_rows if row.error is not None]
    complete = sum(layers is not None and 0 < layers.compared == layers.known for layers in judged)
    if judged and not result.reference.layers:
        yield f"no layer judged by itself{': ' * bool(result.reference.replay_problem)}{result.reference.replay_problem}"
    elif complete < len(judged):
        yield f"every layer judged by itself in {complete} of {len(judged)} subjects"
        yield from dict.fromkeys(layers.stopped for layers in judged if layers is not None and layers.stopped)


def _nodes(result: Result) -> Iterator[str]:
    """The files whose nodes were not all judged one by one."""
    for row in result.rows:
        layers = row.error.layers if row.error else None
        if layers is not None and layers.stopped:
            yield f"{row.subject}: {layers.stopped}"
        elif layers is not None and layers.compared < layers.known:
            yield f"{row.subject}: {layers.compared} of {layers.known} nodes judged by themselves"


def _speed(result: Result) -> Iterator[str]:
    """Why the speeds have no verdict."""
    runs = max((len(row.speed.launches) or 1 for row in result.rows if row.speed), default=0)
    if noisy := list(_too_noisy(result)):
        yield from noisy
        yield f"on a quiet machine: {command(result)}"
    elif result.settings.no_timing:
        yield f"speed not measured{why_untimed(result)}"
    elif runs == 0:
        yield "no subject was timed"
    elif runs == 1:
        yield "one process run each, too few to call one faster (--effort standard makes more)"
