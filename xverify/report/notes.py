"""The sentences under the table: what was checked, against what, and what it means."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ..results.records import Layers, Result, Row, Sample, Speed
from ..results.verdicts import Verdict
from ..timing.statistics import clean, ratio
from ..verdict import limits
from ..verdict.limits import OWN_EQUAL
from ..workload.ranks import ONE_PROCESS
from . import numbers
from .bounded import bounded

PHASES = ("starting", "warming", "timing", "judging")
FEW = 4  # names in a sentence
MOST_NOTES = 3  # notes on the layers of one subject
# Policy of memory allocation -> what it means.
ALLOCATION = {
    "keep": "--allocator keep: what a subject frees stays with it",
    "system": "--allocator system: the C library's own rule, as in a plain script",
}


def warnings(result: Result) -> Iterator[str]:
    """The sentences above the table: what changes the meaning of every row."""
    if result.weights.replaced:
        yield f"Note: {result.weights.replaced}"


def footer(result: Result) -> Iterator[str]:
    """The sentences under the table, one in each line. With several tasks, each is marked with its task, unless all share it."""
    parts = [(part, list(_sentences(part))) for part in result.by_task()]
    told: set[str] = set()
    for part, sentences in parts:
        for sentence in sentences:
            if all(sentence in others for _, others in parts):
                yield from [sentence] if sentence not in told else []
                told.add(sentence)
            else:
                yield f"{part.tasks[0]}: {sentence}"
    yield from notes(result)


def notes(result: Result) -> Iterator[str]:
    """The notes on a run, one in each line."""
    yield from (f"Note: {note}" for note in result.notes)
    yield from _beside_one_process(result)
    yield from (_full_memory(row) for row in result.rows if row.memory.nearly_full)


def _sentences(result: Result) -> Iterator[str]:
    """The sentences about one task."""
    digest = result.weights.digest
    if digest:
        yield _weights(result, digest)
        if "train" in result.tasks:
            yield _training(result)
        else:
            yield _outputs(result)
            yield from _layers(result)
            yield from (f"Coverage: {says}" for says in unreached(result))
            yield from calls(result)
        if result.weights.normal_form:
            yield _normal_form(result)
        yield from _folded(result)
        routes = sorted({row.weights_route for row in result.rows if row.weights_route})
        yield f"Weight routes: {'; '.join(routes)}"
    yield from speed_sentences(result)


def why_untimed(result: Result) -> str:
    """Why a run that times nothing does so, as the end of a sentence."""
    if result.settings.launcher:
        return ": the processes of a launcher are not timed"
    return ": --task decode times nothing" if result.settings.task == "decode" else ", as --no-timing asks"


def speed_sentences(result: Result) -> Iterator[str]:
    """The sentences about speed and memory."""
    if result.settings.no_timing:
        yield f"Speed: not measured{why_untimed(result)}"
        return
    yield _speed(result)
    yield from _allocation(result)
    yield "Time ratio: this row's time over the first row's, paired by round"
    if result.settings.rerun is not None:
        yield "Elapsed: all timed rounds together, also noisy ones; the other figures of speed are medians of the quiet rounds"
    if result.noise.rounds:
        yield _noise(result)
        yield from bounded(result)


def coverage(layers: Layers) -> str:
    """Which layers of one subject were checked, and which were not."""
    cases = f" in input cases {', '.join(map(str, layers.cases))}" if layers.cases != (0,) else ""
    text = f"{layers.compared} of {layers.known} checked against float64{cases}, captured from {layers.subject}"
    if layers.missing:
        text += f"; not captured, so checked together with the glue code around them: {few(layers.missing, 5)}"
    if layers.matched:
        pairs = ", ".join(f"{canonical} = {own}" for canonical, own in layers.matched.items())
        text += f"; matched by order and shape: {pairs}"
    for subject, reason in layers.failed.items() if layers.compared else ():
        text += f"; {subject} could not be captured: {reason}"
    return text + (f"; {layers.stopped}" if layers.stopped else "")


def where_time_went(result: Result) -> str:
    """The seconds of the run by phase, and the seconds that the subjects alone need; '' when they are not known."""
    spent = result.timeline
    phases = [phase for phase in PHASES if not (phase == "timing" and result.settings.no_timing)]
    shares = [f"{spent[phase + '_seconds']:.0f} {phase}" for phase in phases if phase + "_seconds" in spent]
    if not shares or not {"total_seconds", "unavoidable_seconds"} <= set(spent):
        return ""
    own = f"the subjects alone need {spent['unavoidable_seconds']:.0f} s"
    return f"{spent['total_seconds']:.0f} s = {' + '.join(shares)} ({own})"


def duration(result: Result) -> str:
    """The seconds of the whole run; '' when they are not known."""
    seconds = result.timeline.get("total_seconds")
    return "" if seconds is None else f"{seconds:.0f} s"


def tally(rows: Sequence[Row], what: str) -> str:
    """How many rows are EQUAL, and what the others are: ``1 of 3 subjects EQUAL, 1 DRIFT, 1 crashed``.

    A row that has a verdict and did not run to its end is counted by its verdict, and as one that ended early. One that misses a
    condition of --accept is counted by its verdict, too.
    what: what a row is called, in the plural.
    """
    equal, others = 0, Counter[str]()
    for row in rows:
        if row.error is None:
            others["without a verdict" if row.status == "ok" else row.ending] += 1
        elif row.error.verdict <= Verdict.EQUAL:
            equal += 1
        else:
            others[row.error.verdict] += 1
    early = sum(row.error is not None and row.status != "ok" for row in rows)
    missed = sum(row.misses_gate for row in rows)
    counts = [*others.items(), *([("ended early", early)] if early else [])]
    counts += [(f"miss{'es its' if missed == 1 else ' their'} condition", missed)] if missed else []
    return ", ".join([f"{equal} of {len(rows)} {what} EQUAL", *(f"{count} {name}" for name, count in counts)])


def input_cases(result: Result) -> str:
    """How many input cases there were."""
    count = result.inputs.cases
    return "1 input case" if count == 1 else f"{count} input cases"


def unreached(result: Result, most: int | None = None) -> Iterator[str]:
    """What no input case reached, for the subjects that pass. most: number of places that are told; None: all."""
    subjects: dict[tuple[str, ...], list[str]] = {}
    passing = [row for row in result.rows if row.error is not None and not row.error.verdict.fails]
    for row in passing:
        subjects.setdefault(row.error.unreached if row.error is not None else (), []).append(row.subject)
    for places, names in subjects.items():
        if places:
            of = "" if len(names) == len(passing) else f"{', '.join(dict.fromkeys(names))}: "
            more = f"; and {len(places) - most} more" if most is not None and len(places) > most else ""
            yield f"{of}not covered by any input case: {'; '.join(places[:most])}{more}"


def calls(result: Result) -> Iterator[str]:
    """How many calls were compared, where nothing was timed: the last timed calls are compared, too."""
    if not any(row.speed for row in result.rows) and result.inputs.cases:
        count = result.inputs.cases
        yield (
            f"Calls: {count} of each subject compared, {'the first one' if count == 1 else 'each among the first ones'} of its "
            "process; what begins at a later call would not show (of timed calls, the last ones are compared)"
        )


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first names of a list. most: their number; further names are replaced by an ellipsis."""
    return ", ".join(names[:most]) + (", …" if len(names) > most else "")


def _beside_one_process(result: Result) -> Iterator[str]:
    """How long a step takes on ranks, as a multiple of the time of the same step in one process, whatever row is the first."""
    alone = {row.subject.removesuffix(ONE_PROCESS): row for row in result.rows if row.subject.endswith(ONE_PROCESS)}
    for row in result.rows:
        other = alone.get(row.subject)
        if row.task == "train" and row.counted and other is not None and other.counted:
            found = ratio(_quiet(row.counted), _quiet(other.counted))
            if found is None:  # they were measured in different turns, of which another note tells
                continue
            ends = (found.low, found.high) if len(row.counted.launches) > 1 else ()
            times = numbers.time_ratio(found.mean, *ends)
            yield f"Ranks: {row.subject}: a step on {result.settings.ranks} ranks takes {times} times as long as in one process"


def _quiet(speed: Speed) -> list[Sample]:
    """The samples without noise that a run can measure; a result file that was edited may have others."""
    return [each for each in clean(speed.samples) if 0 < each.seconds < math.inf and each.calls > 0]


# -- weights and numbers ----------------------------------------------------------------------------------------------


def _weights(result: Result, digest: str) -> str:
    weights, rows = result.weights, result.timed_rows
    equal = sum(row.weights_digest == weights.folded_digests.get(row.subject, digest) for row in rows)
    meaning = ", so every row computes with the same weights" if equal == len(rows) else ""
    return (
        f"Weights: {weights.source}, read back equal from {equal} of {len(rows)} subjects "
        f"({digest[:19]}…){meaning}; {weights.parameters:,} parameters in {weights.tensors} tensors, "
        f"running statistics: {weights.statistics}"
    )


def _normal_form(result: Result) -> str:
    sums = [f"{name} = {' + '.join(parts)}" for name, parts in list(result.weights.normal_form.items())[:2]]
    return f"Digests: computed after summing the weights that some framework stores as one: {', '.join(sums)}, …"


def _folded(result: Result) -> Iterator[str]:
    """The subjects whose weights are not those of the reference one by one."""
    for subject, names in result.weights.folded.items():
        yield (
            f"Folded: {subject} holds {len(names)} weights as the reference computes them, as names.toml says ({few(names)}); "
            f"{_must_return(result, subject)}"
        )
    for subject, names in result.weights.stored.items():
        yield (
            f"Stored otherwise: {subject} stores {len(names)} of the reference's weights in another form, or twice, as names.toml "
            f"says ({few(names)}); their values are the same, and it is judged in the reference's form"
        )
    for subject, says in result.weights.changed.items():
        yield (
            f"Changed: {subject} holds {len(says)} weights with other values than the reference, as names.toml says "
            f"({few(says)}), computed in float64 and rounded to float32; {_must_return(result, subject)}"
        )
    for subject, names in result.weights.absent.items():
        yield (
            f"Absent: {subject} has no place for weights of the reference, as names.toml says ({few(names)}); whether it has their "
            f"values itself shows in its layers and outputs only; {_must_return(result, subject)}"
        )


def _must_return(result: Result, subject: str) -> str:
    return f"the digest of all its weights must be {result.weights.folded_digests.get(subject, '')[:19]}…"


def _training(result: Result) -> str:
    inputs = result.inputs
    own = any(row.training is not None and row.training.own_step for row in result.rows)
    what = "what the steps change of the parameters" if own else "the gradients"
    return (
        f"Training: {inputs.cases} batches ({inputs.kind}); "
        f"the errors in the first table are those of {what}, against torch in float64"
    )


def _outputs(result: Result) -> str:
    reference = result.reference
    if reference.random:
        return "Outputs: not compared, because the reference is random"
    if reference.inconsistent:
        return "Outputs: not compared, because the reference computes something else in float32 than in float64"
    name, floor, limit = "residual / float32's (× float32's)", reference.floor, OWN_EQUAL
    if reference.layers:
        name, limit = "residual / noise floor (× floor)", limits.EQUAL_RHO
        floor = "the rounding of all layers, modelled and measured"
    precision = "float64, but not in every part" if reference.precision == "mixed" else reference.precision
    why = f" ({reference.precision_problem})" if reference.precision_problem else ""
    return (
        f"Outputs: {input_cases(result)} checked against {reference.framework} in "
        f"{precision}{why}; {name} divides the error by {floor}; a value up to {limit:g} is EQUAL"
    )


def _layers(result: Result) -> Iterator[str]:
    """The layers and weights that were checked, and those that were not."""
    reference = result.reference
    known = reference.layers
    if reference.random:
        yield "Layers: none checked, because the reference is random"
        return
    if reference.inconsistent:
        return
    if not known:
        why = f"{reference.framework} is the reference, and only torch's modules are replayed"
        yield f"Layers: none checked: {reference.replay_problem or why}"
        return
    judged = [(row, row.error.layers) for row in result.timed_rows if row.error is not None]
    complete = sum(layers is not None and layers.compared == layers.known for _, layers in judged)
    how = "computed again from the inputs that it received (case 0); xverify explain FILE.json shows every layer"
    if complete:
        yield f"Layers: {known} of {known} checked against float64 in {complete} of {len(judged)} subjects, each {how}"
    else:
        yield f"Layers: no subject has all {known} checked against float64; each that is checked is {how}"
    for row, layers in judged:
        if layers is None or not layers.compared:
            why = (layers.stopped if layers else "") or "the framework does not show its layers"
            yield f"  {row.subject}: no layer checked, only the outputs: {why}"
        elif layers.missing or layers.matched or layers.stopped or layers.failed or layers.cases != (0,):
            yield f"  {row.subject}: {coverage(layers)}"
        yield from _other_ways(row, layers)
    untested = reference.untested
    for row, layers in judged:
        if layers is not None and layers.untested:
            names = few([layer.layer for layer in layers.untested])
            yield f"UNTESTED: {row.subject}: {len(layers.untested)} of {len(layers.layers)} layers: {names}"
    if untested:
        yield (
            f"UNTESTED: {len(untested)} of {len(untested) + reference.tested} weights and constants; a fault in them "
            f"would not show on these inputs: {few(untested)}"
        )


def _other_ways(row: Row, layers: Layers | None) -> Iterator[str]:
    """How layers were compared where the port is written in another way. xverify explain shows every note."""
    notes = layers.notes if layers else ()
    for note in notes[:MOST_NOTES]:
        yield f"  {row.subject}: {note}"
    if len(notes) > MOST_NOTES:
        yield f"  {row.subject}: and {len(notes) - MOST_NOTES} more such notes; xverify explain FILE.json shows all"


# -- speed ------------------------------------------------------------------------------------------------------------


def _speed(result: Result) -> str:
    runs = max((len(row.speed.launches) or 1 for row in result.rows if row.speed), default=0)
    meaning = "no subject was timed"
    if runs > 1:
        meaning = f"{runs} process runs a subject; intervals are over process runs, and SAME is within ±2%"
    elif runs == 1:
        quick = "quick run: " if result.settings.effort == "quick" else ""
        meaning = (
            f"{quick}one process each, too few to call one faster (--effort standard runs more); "
            "the interval is within that process"
        )
    return f"Speed: {result.host.cpu}, {result.settings.threads} threads; {meaning}"


def _allocation(result: Result) -> Iterator[str]:
    """The policy of memory allocation, and the page faults of each subject's calls."""
    faults = []
    for row in result.rows:
        runs = row.speed.launches if row.speed else ()
        counts = sorted(each.faults_per_call for each in runs if each.faults_per_call is not None)
        if counts:
            ends = dict.fromkeys(f"{count:,.0f}" for count in (counts[0], counts[-1]))
            faults.append(f"{row.subject} {' to '.join(ends)}")
    if faults:
        policy = ALLOCATION.get(result.settings.allocator, "no stated policy")
        yield f"Memory: {policy}; page faults a call: {', '.join(faults)}"


def _noise(result: Result) -> str:
    noise = result.noise
    unseen = f"; this system does not report {', '.join(noise.missing)}" if noise.missing else ""
    if noise.dropped and noise.refusal:
        return f"TOO NOISY for a verdict on speed: {noise.refusal}{unseen}"
    text = f"Noise: {noise.dropped} of {noise.rounds} rounds dropped as noisy"
    if noise.dropped:
        text += f" ({', '.join(f'{reason}: {count}' for reason, count in noise.reasons.items())})"
        text += f"; {noise.culprit}" if noise.culprit else ""
    return text + unseen


def _full_memory(row: Row) -> str:
    used = f"{row.memory.gpu_used_mib:,.0f} of {row.memory.gpu_total_mib:,.0f} MiB"
    return (
        f"{row.subject}: the device's memory was nearly full ({used}): a framework may have paged, or chosen slower "
        "algorithms; try a smaller --batch"
    )
