"""One subject on its way through a run, step by step. A subject's failure ends its own lane and no other."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from . import compare, timing
from .errors import Failed, SubjectError, Unsupported
from .framework import Framework
from .process import Worker
from .records import Error, Layers, Memory, Row, Sample, Speed
from .reference import Reference, build_arguments
from .request import Request
from .spec import ModelFolder
from .watch import Watch
from .weights import npz

WARM_CALLS, WARM_SECONDS = 2, 0.5  # after a first and a second step; never fewer calls than input cases


@dataclass
class Lane:
    """Facts gather here from step to step; ``row`` freezes them."""

    request: Request
    model: ModelFolder
    adapter: type[Framework]
    mode: str
    worker: Worker
    watch: Watch
    failure: SubjectError | None = None
    started: dict[str, Any] = field(default_factory=dict)
    built: dict[str, Any] = field(default_factory=dict)
    loaded: dict[str, Any] = field(default_factory=dict)
    prepared: dict[str, Any] = field(default_factory=dict)
    warmed: dict[str, Any] = field(default_factory=dict)
    route: str | None = None
    samples: list[Sample] = field(default_factory=list)
    kept: dict[int, Path] = field(default_factory=dict)
    again: Path = Path()
    timed_cases: int = 0
    peak: float | None = None
    unfinished: list[float] = field(default_factory=list)
    traces: int | None = None
    retraces: int | None = None
    memory: Memory = field(default_factory=Memory)
    error: Error | None = None
    captured: dict[str, Any] = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)
    layers: Layers | None = None

    @property
    def label(self) -> str:
        return self.adapter.label(self.mode)

    @property
    def alive(self) -> bool:
        return self.failure is None

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Announce a step, and keep its failure."""
        if doing:
            self.watch.phase(self.label, doing)
        try:
            yield
        except SubjectError as error:
            self.failure = self.failure or error
            self.worker.close()

    def abandon(self, reason: str) -> None:
        """End a lane that has not failed by itself: its reason is the run's, however its process dies."""
        self.failure = self.failure or Failed(reason)
        self.worker.kill()

    def start(self) -> None:
        """Start the process and import the framework, unless its mode cannot hold the model."""
        refused = self.adapter.refuses(self.model, self.mode)
        if refused:
            self.failure = Unsupported(refused)
            return
        slow = self.adapter.slow_start()
        with self.step("importing" + (f" ({slow})" if slow else "")):
            self.started = self.worker.start()

    def build(self, reference: Reference) -> None:
        """Build the model, load the weights and read them back."""
        if not self.alive:
            return
        with self.step("building the model, loading the weights"):
            if self.adapter.runs_export and reference.onnx_problem:
                raise Unsupported(reference.onnx_problem)
            arguments = build_arguments(self.model, self.adapter.name, reference.onnx)
            self.built = self.worker.request("build", **arguments, mode=self.mode)
            by_onnx = self.adapter.weights_route == "onnx" and reference.onnx_weights is not None
            self.route = _route(self.adapter, reference, by_onnx)
            self.loaded = self.worker.request(
                "load", path=str(reference.onnx_weights if by_onnx else reference.weights)
            )

    def prove(self, merges: dict[str, tuple[str, ...]]) -> None:
        """Read the weights again in the form that every framework of the run can hold, when that is not the canonical one."""
        if self.alive and merges:
            with self.step(""):
                self.loaded = self.worker.request("digest", merges=merges)

    def warm(self, reference: Reference) -> None:
        """First step, second step, and warm-up: on the clock, so nothing else may run."""
        if not self.alive:
            return
        with self.step("first step, warming up"):
            self.prepared = self.worker.request("prepare", inputs=str(reference.inputs), mode=self.mode)
            calls, seconds = max(WARM_CALLS, self.request.cases), WARM_SECONDS
            if self.request.warmup is not None:
                calls, seconds = self.request.warmup, 0.0
            self.warmed = self.worker.request("warm", calls=calls, seconds=seconds)
            self.traces = self.worker.request("traces")["traces"]

    @property
    def seconds_per_call(self) -> float:
        """What a call takes, as far as the warm-up tells."""
        known: float = self.warmed["seconds_per_call"] or self.prepared["second_step_seconds"]
        return known

    @property
    def room(self) -> int:
        """Bytes of one call's outputs."""
        outputs = self.model.spec.outputs.values()
        return sum(math.prod(each.sized(self.request.batch)) * np.dtype(each.dtype).itemsize for each in outputs)

    def block(self, index: int, case: int, calls: int, keep: bool) -> None:
        """One timed block. keep: save the outputs of its last call, which are what is compared."""
        if not self.alive:
            return
        with self.step(""):
            if not keep:
                reply = self.worker.request("block", case=case, calls=calls)
            else:
                if not self.kept:
                    self.peak = self.worker.peak_rss_mib()  # what reading the outputs takes is not the framework's
                path = self.worker.folder / f"outputs-{case}.npz"
                reply = self.worker.request("block", case=case, calls=calls, keep=str(path), room=self.room)
                self.kept[case] = path
                self.unfinished.append(reply["unfinished_seconds"])
            self.samples.append(Sample(index, case, calls, reply["seconds"]))

    def finish(self) -> None:
        """After the clock: memory in one more pass, and any input case that too few calls left out."""
        if not self.alive:
            return
        with self.step("measuring memory"):
            self.timed_cases = len(self.kept)
            if self.traces is not None:
                self.retraces = self.worker.request("traces")["traces"] - self.traces
            average = _average_rss(self.worker, lambda: self.worker.request("warm", calls=1, seconds=0.1))
            for case in set(range(self.request.cases)) - set(self.kept):
                path = self.worker.folder / f"outputs-{case}.npz"
                self.worker.request("block", case=case, calls=1, keep=str(path))
                self.kept[case] = path
            self.again = self.worker.folder / "again.npz"
            self.worker.request("block", case=0, calls=1, keep=str(self.again))
            self.memory = Memory(self.peak, average, self.worker.import_rss_mib)

    @property
    def build_key(self) -> tuple[str, str]:
        """Subjects with the same key build the same model, so the layers of one speak for all."""
        return self.adapter.name, str(self.adapter.mode_options.get(self.mode, {}))

    def capture(self, reference: Reference) -> bool:
        """One untimed pass that writes down what the layers take and give; whether anything was captured.

        Layers that the framework has under other names, and no names.toml to say so, are matched by order and shape. Raises
        SubjectError, which takes nothing from what was timed.
        """
        self.watch.phase(self.label, "capturing its layers")
        wanted = reference.list_layers()
        self.captured = reference.ask_capture(self.worker, self.captured_in, wanted)
        called = {record["name"] for record in self.captured["records"]}
        if called and called < set(wanted) and self.captured["others"] and not self.adapter.runs_export:
            self.captured = reference.ask_capture(self.worker, self.captured_in, None)
            self.matched = reference.match(self.captured, self.captured_in)
            canonical = {theirs: mine for mine, theirs in self.matched.items()}
            for record in self.captured["records"]:
                record["name"] = canonical.get(record["name"], record["name"])
        return bool(self.captured["records"])

    @property
    def captured_in(self) -> Path:
        return self.worker.folder / "layers"

    def judge(self, reference: Reference) -> None:
        """Compare what the last timed calls returned with the reference."""
        if not self.alive:
            return
        if self.loaded["digest"] != reference.digest:
            mine = self.loaded["digest"]
            self.error = Error(
                "INVALID", f"other weights after loading: digest {mine}, the reference has {reference.digest}"
            )
            return
        outputs = npz.OnDisk(*self.kept.values())
        error = compare.compare(
            outputs,
            reference.truth,
            reference.float32,
            self.model.spec,
            self.request.cases,
            reference.floors,
            self.layers,
        )
        if error.verdict == "DIFFERENT":
            share = compare.unsteady(outputs, npz.OnDisk(self.again))
            if share > compare.UNSTEADY:
                reason = f"two calls on one input differ by {share:.2g} of the result: dropout or another random operation is on"
                error = replace(error, verdict="INVALID", reason=f"{reason}; {error.reason}")
        self.error = replace(error, timed_cases=self.timed_cases)

    def row(self, baseline: Lane) -> Row:
        return Row(
            subject=self.label,
            framework=self.adapter.name,
            mode=self.mode,
            task=self.request.task,
            device=self.request.device,
            batch=self.request.batch,
            status=self.failure.status if self.failure else "ok",
            reason=str(self.failure) if self.failure else None,
            weights_digest=self.loaded.get("digest"),
            weights_route=self.route,
            error=self.error,
            speed=self._speed(baseline),
            memory=self.memory,
            environment=self.started.get("environment", {}),
        )

    def _speed(self, baseline: Lane) -> Speed | None:
        if not self.samples:
            return None
        seconds = timing.seconds_per_call(self.samples)
        ratio = timing.ratio(self.samples, baseline.samples)
        verdict, reason = self._speed_verdict(baseline, seconds.mean)
        batch = self.request.batch
        return Speed(
            fps=batch / seconds.mean,
            fps_ci=(batch / seconds.high, batch / seconds.low if seconds.low > 0 else None),
            seconds_per_step=seconds.mean,
            elapsed_seconds=sum(sample.seconds for sample in self.samples),
            calls=sum(sample.calls for sample in self.samples),
            warmup_calls=self.warmed["calls"],
            ratio=ratio.mean if ratio else None,
            ratio_ci=(ratio.low, ratio.high) if ratio else (None, None),
            verdict=verdict,
            reason=reason,
            first_step_seconds=self.prepared["first_step_seconds"],
            second_step_seconds=self.prepared["second_step_seconds"],
            import_seconds=self.started["seconds"],
            build_seconds=self.built["seconds"],
            samples=tuple(self.samples),
            retraces=self.retraces,
        )

    def _speed_verdict(self, baseline: Lane, seconds: float) -> tuple[str | None, str | None]:
        if timing.unfinished(self.unfinished, seconds):
            return "REFUSED", (
                f"{min(self.unfinished):.2g} s of computation were left after its wait, against {seconds:.2g} s a call "
                "timed: the adapter's wait does not wait for the outputs"
            )
        if self.error is None:
            return "REFUSED", "its outputs were not compared"
        if self.error.verdict in ("DIFFERENT", "INVALID"):
            return "REFUSED", "it does not compute the same"
        if self.retraces:
            return "REFUSED", (
                f"retraced {self.retraces} time{'s' * (self.retraces > 1)} while it was timed: its seconds hold compilation. "
                f"Let it meet every input case first (--warmup {self.request.cases} or more), and let no Python value that "
                "changes from call to call reach the graph"
            )
        if self is baseline:
            return "BASELINE", None
        return None, "one launch: no verdict on speed"


def _route(adapter: type[Framework], reference: Reference, by_onnx: bool) -> str:
    if adapter.runs_export:
        return f"{reference.framework} -> ONNX"
    if by_onnx:
        return f"{reference.framework} -> ONNX -> {adapter.name}"
    return f"canonical -> {adapter.name}"


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
