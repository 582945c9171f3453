"""The straight line: spec -> weights -> inputs -> workers -> samples -> comparison -> verdict -> report."""

from __future__ import annotations

import datetime
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import __version__, compare, frameworks, host, timing
from . import reference as references
from .errors import Failed, SubjectError, Unsupported, UsageError
from .framework import Framework
from .process import Worker
from .records import Error, Memory, Result, Row, Sample, Speed, overall
from .reference import Reference
from .request import Request, resolve
from .spec import ModelFolder
from .watch import Watch
from .weights import npz

WARM_CALLS, WARM_SECONDS = 3, 0.5


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
    warmup, rerun, effort, threads, device, seed, cases, weights, trust, python, timeout``, as on the command line.

    A subject that cannot run becomes a row with its status and reason. Raises UsageError for what cannot be run at all.
    """
    if json is not None and not Path(json).absolute().parent.is_dir():
        raise UsageError(f"--json {json}: the folder {Path(json).absolute().parent} does not exist")
    request, folder = resolve(model, subjects, **settings)
    result = execute(request, folder, watch or Watch())
    if json is not None:
        result.write(json)
    return result


@dataclass
class Lane:
    """One subject on its way through the run. Facts gather here; ``row`` freezes them."""

    label: str
    adapter: type[Framework]
    mode: str
    folder: Path
    worker: Worker | None = None
    failure: SubjectError | None = None
    started: dict[str, Any] = field(default_factory=dict)
    built: dict[str, Any] = field(default_factory=dict)
    loaded: dict[str, Any] = field(default_factory=dict)
    prepared: dict[str, Any] = field(default_factory=dict)
    warmed: dict[str, Any] = field(default_factory=dict)
    route: str | None = None
    samples: list[Sample] = field(default_factory=list)
    kept: dict[int, Path] = field(default_factory=dict)
    timed_cases: int = 0
    unfinished: list[float] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)

    @contextmanager
    def guard(self) -> Iterator[None]:
        """A subject's failure ends its own lane, and no other."""
        try:
            yield
        except SubjectError as error:
            self.failure = error
            if self.worker is not None:
                self.worker.close()

    def ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        assert self.worker is not None
        return self.worker.request(op, **arguments)


def execute(request: Request, folder: ModelFolder, watch: Watch) -> Result:
    """Run a request to its result; nothing that was measured is lost when a subject, or the user, ends early."""
    created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    notes = list(request.notes)
    for note in notes:
        watch.note(note)
    reference: Reference | None = None
    lanes: list[Lane] = []
    errors: dict[str, Error | None] = {}
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        space = Path(directory)
        for index, subject in enumerate(request.subjects):
            adapter, mode = frameworks.parse_subject(subject)
            lanes.append(Lane(adapter.label(mode), adapter, mode, space / f"subject-{index}"))

        def start(framework: str, place: Path) -> Worker:
            worker = _worker(request, frameworks.load(framework), place, watch, "reference")
            worker.start()
            return worker

        try:
            reference = references.prepare(
                request, folder, _made(space / "reference"), start, lambda text: watch.phase("reference", text)
            )
            for lane in lanes:
                with lane.guard():
                    _bring_up(lane, request, folder, reference, watch)
            _interleave(lanes, request, watch)
            for lane in lanes:
                errors[lane.label] = _judge(lane, reference, folder, request)
        except SubjectError as error:
            for lane in lanes:
                lane.failure = lane.failure or Failed(f"no reference: {request.reference} {error.status}: {error}")
        except KeyboardInterrupt:
            for lane in lanes:
                lane.failure = lane.failure or Failed("interrupted by the user")
            notes.append("interrupted: what had been measured by then is here")
        finally:
            for lane in lanes:
                if lane.worker is not None:
                    lane.worker.close()
    rows = [_row(lane, lanes, errors, request, folder) for lane in lanes]
    for row in rows:
        watch.row(row)
    if reference is not None and reference.onnx_problem:
        notes.append(reference.onnx_problem)
    return Result(
        model=folder.name,
        tasks=(request.task,),
        verdict=overall(rows),
        rows=tuple(rows),
        created=created,
        xverify=__version__,
        host=host.describe(),
        settings={**asdict(request), "folder_digest": folder.digest()},
        weights=_weights(reference),
        inputs={
            "digest": reference.inputs_digest if reference else None,
            "cases": request.cases,
            "kind": f"synthetic, seed {request.seed}",
        },
        reference=reference.describe() if reference else {"framework": request.reference},
        rule=compare.RULE,
        notes=tuple(notes),
    )


def _weights(reference: Reference | None) -> dict[str, Any]:
    if reference is None:
        return {"digest": None, "tensors": 0, "parameters": 0}
    return {
        "digest": reference.digest,
        "tensors": reference.tensors,
        "parameters": reference.parameters,
        "source": reference.source,
    }


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def _worker(request: Request, adapter: type[Framework], place: Path, watch: Watch, label: str) -> Worker:
    python = request.python.get(adapter.name, sys.executable)
    worker = Worker(adapter, python, _made(place), request.threads, request.device, request.timeout)
    worker.beat = lambda seconds, line: watch.beat(label, seconds, line)
    return worker


def _bring_up(lane: Lane, request: Request, folder: ModelFolder, reference: Reference, watch: Watch) -> None:
    """Import, build, load the weights and read them back, first step, warm-up: everything before the timed rounds."""
    lane.worker = _worker(request, lane.adapter, lane.folder, watch, lane.label)
    slow = lane.adapter.slow_start()
    watch.phase(lane.label, "importing" + (f" ({slow})" if slow else ""))
    lane.started = lane.worker.start() | {"import_rss_mib": lane.worker.import_rss_mib}
    watch.phase(lane.label, "building the model")
    if lane.adapter.runs_export and reference.onnx_problem:
        raise Unsupported(reference.onnx_problem)
    lane.built = lane.ask("build", **references.build_arguments(folder, lane.adapter.name, reference.onnx))
    watch.phase(lane.label, "loading the weights")
    by_onnx = lane.adapter.weights_route == "onnx" and reference.onnx_weights is not None
    lane.route = _route(lane.adapter, reference, by_onnx)
    lane.loaded = lane.ask("load", path=str(reference.onnx_weights if by_onnx else reference.weights))
    watch.phase(lane.label, "first step")
    lane.prepared = lane.ask("prepare", inputs=str(reference.inputs), mode=lane.mode)
    watch.phase(lane.label, "warming up")
    if request.warmup is not None:
        lane.warmed = lane.ask("warm", calls=request.warmup, seconds=0.0)
    else:
        lane.warmed = lane.ask("warm", calls=WARM_CALLS, seconds=WARM_SECONDS)


def _route(adapter: type[Framework], reference: Reference, by_onnx: bool) -> str:
    if adapter.runs_export:
        return f"{reference.framework} -> ONNX"
    if by_onnx:
        return f"{reference.framework} -> ONNX -> {adapter.name}"
    return f"canonical -> {adapter.name}"


def _interleave(lanes: list[Lane], request: Request, watch: Watch) -> None:
    """Rounds of one block a subject, one subject at a time; each round on the next input case."""
    live = {lane.label: lane for lane in lanes if lane.failure is None}
    if not live:
        return
    expected = {
        label: lane.warmed["seconds_per_call"] or lane.prepared["second_step_seconds"] for label, lane in live.items()
    }
    plan = timing.plan(expected, request.cases, request.rerun)
    begun = time.monotonic()
    for index, order in enumerate(timing.orders(list(live), plan.rounds, request.seed)):
        case = index % request.cases
        # The outputs that are compared are those of the last timed call on each case.
        last = index + request.cases >= plan.rounds
        for label in order:
            lane = live[label]
            if lane.failure is not None:
                continue
            with lane.guard():
                calls = plan.calls[label][index]
                keep = lane.folder / f"outputs-{case}.npz" if last else None
                reply = lane.ask("block", case=case, calls=calls, keep=str(keep) if keep else None)
                lane.samples.append(Sample(index, case, calls, reply["seconds"]))
                if keep:
                    lane.kept[case] = keep
                    lane.unfinished.append(reply["unfinished_seconds"])
        done = index + 1
        watch.timing(done, plan.rounds, (time.monotonic() - begun) / done * (plan.rounds - done))
    for lane in live.values():
        if lane.failure is None:
            with lane.guard():
                watch.phase(lane.label, "measuring memory, computing the cases not timed")
                _finish(lane, request)


def _finish(lane: Lane, request: Request) -> None:
    """After the clock: memory in one more pass, and any input case that too few calls left out."""
    assert lane.worker is not None
    lane.timed_cases = len(lane.kept)
    average = _average_rss(lane.worker, lambda: lane.ask("warm", calls=1, seconds=0.1))
    for case in range(request.cases):
        if case not in lane.kept:
            keep = lane.folder / f"outputs-{case}.npz"
            lane.ask("block", case=case, calls=1, keep=str(keep))
            lane.kept[case] = keep
    lane.memory = Memory(
        peak_rss_mib=lane.worker.peak_rss_mib(), average_rss_mib=average, import_rss_mib=lane.started["import_rss_mib"]
    )


def _average_rss(worker: Worker, work: Callable[[], object]) -> float | None:
    """Mean resident memory in MiB while ``work`` runs, sampled every 10 ms."""
    samples: list[float] = []
    done = threading.Event()

    def sample() -> None:
        while not done.is_set():
            rss = worker.rss_mib()
            if rss is not None:
                samples.append(rss)
            done.wait(0.01)

    sampler = threading.Thread(target=sample, daemon=True)
    sampler.start()
    try:
        work()
    finally:
        done.set()
        sampler.join()
    return sum(samples) / len(samples) if samples else None


def _judge(lane: Lane, reference: Reference, folder: ModelFolder, request: Request) -> Error | None:
    if lane.failure is not None or not lane.kept:
        return None
    if lane.loaded["digest"] != reference.digest:
        reason = f"other weights after loading: digest {lane.loaded['digest']}, the reference has {reference.digest}"
        return Error(verdict="INVALID", reason=reason)
    outputs = {key: array for path in lane.kept.values() for key, array in npz.load_file(path).items()}
    error = compare.compare(outputs, reference.truth, reference.float32, folder.spec, request.cases)
    return Error(**{**error.__dict__, "timed_cases": lane.timed_cases})


def _row(lane: Lane, lanes: list[Lane], errors: dict[str, Error | None], request: Request, folder: ModelFolder) -> Row:
    error = errors.get(lane.label)
    return Row(
        subject=lane.label,
        framework=lane.adapter.name,
        mode=lane.mode,
        task=request.task,
        device=request.device,
        batch=request.batch,
        status=lane.failure.status if lane.failure else "ok",
        reason=str(lane.failure) if lane.failure else None,
        weights_digest=lane.loaded.get("digest"),
        weights_route=lane.route,
        error=error,
        speed=_speed(lane, lanes[0], error, request),
        memory=lane.memory,
        environment=lane.started.get("environment", {}),
    )


def _speed(lane: Lane, baseline: Lane, error: Error | None, request: Request) -> Speed | None:
    if not lane.samples:
        return None
    seconds = timing.seconds_per_call(lane.samples)
    ratio = timing.ratio(lane.samples, baseline.samples)
    verdict, reason = _speed_verdict(lane, baseline, error, seconds.mean)
    return Speed(
        fps=request.batch / seconds.mean,
        fps_ci=(request.batch / seconds.high, request.batch / seconds.low if seconds.low > 0 else None),
        seconds_per_step=seconds.mean,
        elapsed_seconds=sum(sample.seconds for sample in lane.samples),
        calls=sum(sample.calls for sample in lane.samples),
        warmup_calls=lane.warmed["calls"],
        ratio=ratio.mean if ratio else None,
        ratio_ci=(ratio.low, ratio.high) if ratio else (None, None),
        verdict=verdict,
        reason=reason,
        first_step_seconds=lane.prepared["first_step_seconds"],
        second_step_seconds=lane.prepared["second_step_seconds"],
        import_seconds=lane.started["seconds"],
        build_seconds=lane.built["seconds"],
        samples=tuple(lane.samples),
    )


def _speed_verdict(lane: Lane, baseline: Lane, error: Error | None, seconds: float) -> tuple[str | None, str | None]:
    if timing.unfinished(lane.unfinished, seconds):
        return "REFUSED", (
            f"{min(lane.unfinished):.2g} s of computation were left after its wait, against {seconds:.2g} s a call timed: "
            "the adapter's wait does not wait for the outputs"
        )
    if error is None:
        return "REFUSED", "its outputs were not compared"
    if error.verdict in ("DIFFERENT", "INVALID"):
        return "REFUSED", "it does not compute the same"
    if lane is baseline:
        return "BASELINE", None
    return None, "one launch: no verdict on speed"
