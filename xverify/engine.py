"""The straight line: spec -> weights -> inputs -> workers -> samples -> comparison -> verdict -> report."""

from __future__ import annotations

import datetime
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import __version__, compare, frameworks, host, timing
from .errors import SubjectError, UsageError
from .framework import Framework
from .lane import Lane
from .process import Worker
from .records import Layers, Result, overall
from .reference import Reference
from .request import Request, resolve
from .spec import ModelFolder
from .watch import Watch


def run(
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None = None,
    *,
    json: str | Path | None = None,
    watch: Watch | None = None,
    **settings: Any,
) -> Result:
    """Verify and time a model: what ``xverify run`` does, with the same options, returning the same records.

    model: a name of the zoo, or a model folder. subjects: e.g. ``["torch:eager", "jittor"]``; the first is the baseline;
    None runs every installed framework that the model has. json: where to write the result file. settings: ``batch,
    warmup, rerun, effort, threads, device, seed, cases, weights, trust, python, timeout, strict``, as on the command line.

    A subject that cannot run becomes a row with its status and reason. Raises UsageError for what cannot be run at all.
    """
    if json is not None:
        _check_writable(Path(json))
    request, folder = resolve(model, subjects, **settings)
    result = execute(request, folder, watch or Watch())
    if json is not None:
        result.write(json)
    return result


def execute(request: Request, folder: ModelFolder, watch: Watch) -> Result:
    """Run a request to its result. Nothing that was measured is lost when a subject, or the user, ends early."""
    begun, timeline = time.monotonic(), dict.fromkeys(("ready_seconds", "timed_seconds", "total_seconds"), 0.0)
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    notes = list(request.notes)
    for note in notes:
        watch.note(note)
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        space = Path(directory)
        adapter = frameworks.load(request.reference)
        reference = Reference(
            request, folder, _worker(request, adapter, space / "reference", watch, "reference"), watch
        )
        lanes = []
        for index, subject in enumerate(request.subjects):
            adapter, mode = frameworks.parse_subject(subject)
            worker = _worker(request, adapter, space / f"subject-{index}", watch, subject)
            lanes.append(Lane(request, folder, adapter, mode, worker, watch))
        try:
            _measure(request, reference, lanes, watch, lambda name: timeline.update({name: time.monotonic() - begun}))
        except SubjectError as error:
            _abandon(lanes, request, error)
        except KeyboardInterrupt as error:
            notes.append("interrupted: what had been measured by then is here")
            _abandon(lanes, request, error)
        finally:
            for process in (reference.worker, *(lane.worker for lane in lanes)):
                process.close()
    timeline["total_seconds"] = time.monotonic() - begun
    rows = tuple(lane.row(lanes[0]) for lane in lanes)
    if reference.onnx_problem:
        notes.append(reference.onnx_problem)
    return Result(
        model=folder.name,
        tasks=(request.task,),
        verdict=overall(rows, request.strict),
        rows=rows,
        created=created,
        xverify=__version__,
        host=host.describe(),
        settings={**asdict(request), "folder_digest": folder.digest()},
        weights=reference.describe_weights(),
        inputs=reference.describe_inputs(),
        reference=reference.describe(),
        rule=compare.RULE,
        notes=tuple(notes),
        timeline=timeline,
        item=folder.spec.item,
    )


def _measure(
    request: Request, reference: Reference, lanes: list[Lane], watch: Watch, reached: Callable[[str], None]
) -> None:
    """From processes to verdicts. What is on no clock runs beside the reference; the rest has the machine alone."""
    by_onnx = [lane for lane in lanes if lane.adapter.runs_export or lane.adapter.weights_route == "onnx"]
    with ThreadPoolExecutor(max_workers=min(2, host.cores())) as beside:
        try:
            started = {lane.label: beside.submit(lane.start) for lane in lanes}

            def build(lane: Lane) -> None:
                started[lane.label].result()
                lane.build(reference)

            reference.settle()
            built = [beside.submit(build, lane) for lane in lanes if lane not in by_onnx]
            reference.export()
            built += [beside.submit(build, lane) for lane in by_onnx]
            reference.check()
            for done in built:
                done.result()
        except BaseException as error:
            beside.shutdown(wait=False, cancel_futures=True)
            _abandon(lanes, request, error)
            raise
    merges = {name: tuple(parts) for lane in lanes for name, parts in lane.built.get("merges", {}).items()}
    reference.take_normal_form(merges)
    for lane in lanes:
        lane.prove(merges)
    for lane in lanes:
        lane.warm(reference)
    reached("ready_seconds")
    _interleave(request, [lane for lane in lanes if lane.alive], watch)
    reached("timed_seconds")
    for lane in lanes:
        lane.finish()
    reference.evaluate()
    _replay(reference, lanes)
    for lane in lanes:
        lane.judge(reference)


def _replay(reference: Reference, lanes: list[Lane]) -> None:
    """Judge the layers of every framework, once for all its modes that build the same model."""
    done: dict[tuple[str, str], Layers] = {}
    for lane in lanes:
        if lane.alive and reference.list_layers() and lane.build_key not in done:
            done[lane.build_key] = _replayed(reference, lane)
        lane.worker.close()
    for lane in lanes:
        lane.layers = done.get(lane.build_key)


def _replayed(reference: Reference, lane: Lane) -> Layers:
    """What a replay of this lane found. What stops it takes nothing from the outputs that were timed."""
    try:
        if not lane.capture(reference):
            return Layers(known=len(reference.list_layers()), subject=lane.label)
        return reference.replay(lane.captured, lane.captured_in, lane.label, lane.matched)
    except SubjectError as error:
        return Layers(known=len(reference.list_layers()), subject=lane.label, stopped=f"layers not compared: {error}")
    finally:
        shutil.rmtree(lane.captured_in, ignore_errors=True)


def _abandon(lanes: list[Lane], request: Request, error: BaseException) -> None:
    reason = "interrupted by the user"
    if not isinstance(error, KeyboardInterrupt):
        status = f"{error.status}: " if isinstance(error, SubjectError) else ""
        reason = f"no reference: {request.reference} {status}{error}"
    for lane in lanes:
        lane.abandon(reason)


def _interleave(request: Request, lanes: list[Lane], watch: Watch) -> None:
    """Rounds of one block a subject, one subject at a time; each round on the next input case."""
    if not lanes:
        return
    by_label = {lane.label: lane for lane in lanes}
    plan = timing.plan({label: lane.seconds_per_call for label, lane in by_label.items()}, request.cases, request.rerun)
    begun = time.monotonic()
    for index, order in enumerate(timing.orders(list(by_label), plan.rounds, request.seed)):
        last_on_its_case = index + request.cases >= plan.rounds
        for label in order:
            by_label[label].block(index, index % request.cases, plan.calls[label][index], keep=last_on_its_case)
        done = index + 1
        watch.timing(done, plan.rounds, (time.monotonic() - begun) / done * (plan.rounds - done))


def _worker(request: Request, adapter: type[Framework], place: Path, watch: Watch, label: str) -> Worker:
    place.mkdir()
    python = request.python.get(adapter.name, sys.executable)
    worker = Worker(adapter, python, place, request.threads, request.device, request.timeout)
    worker.beat = lambda seconds, line: watch.beat(label, seconds, line)
    return worker


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--json {path} is a folder: name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--json {path}: the folder {path.absolute().parent} does not exist")
