"""One subject on its way through a run, step by step. A subject's failure ends its own candidate and no other."""

from __future__ import annotations

import math
import shutil
import statistics
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import host
from ..errors import Crashed, Failed, SubjectError, Unsupported
from ..framework.adapter import Framework
from ..progress import Listener
from ..reference.reference import Reference, build_arguments
from ..reference.request import Request
from ..results.records import Check, Error, Launch, Layers, Memory, Row, Sample, Speed, Training
from ..timing import plan as planning
from ..timing.noise import Gate, look
from ..training.parity import Learner, Observed, TrainingParity
from ..verdict import outputs as compare
from ..weights import npz
from ..worker.process import Worker
from ..workload.optimizers import Optimizer
from ..workload.spec import ModelFolder

WORSE = ("IDENTICAL", "EQUAL", "DRIFT", "UNTESTED", "DIFFERENT", "INVALID")
LONG_CALL = 0.3  # seconds, from which on no call is made to measure memory alone
STEADY_SECONDS = 10.0  # a warm-up that is not steady by then, and after four windows of blocks, is not going to be


@dataclass
class Candidate:
    """Facts gather here from step to step and launch to launch; ``row`` freezes them.

    worker: of the launch that runs. alone: seconds of a single call on an input that the call before had not. launches, samples:
    of all, an earlier run's that is resumed included; expected: the environment of that run's.
    """

    request: Request
    model: ModelFolder
    adapter: type[Framework]
    mode: str
    worker: Worker
    listener: Listener
    failure: SubjectError | None = None
    resting: bool = False
    launch: int = 0
    launches: list[Launch] = field(default_factory=list)
    expected: dict[str, Any] = field(default_factory=dict)
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
    average: float | None = None
    unfinished: list[float] = field(default_factory=list)
    graph_count: int | None = None
    faults: int | None = None
    alone: float = 0.0
    memory: Memory = field(default_factory=Memory)
    error: Error | None = None
    training: Training | None = None
    captured: dict[str, Any] = field(default_factory=dict)
    matched: dict[str, str] = field(default_factory=dict)
    layers: Layers | None = None

    @property
    def label(self) -> str:
        return self.adapter.label(self.mode)

    @property
    def alive(self) -> bool:
        return self.failure is None

    @property
    def active(self) -> bool:
        """Whether it has a part in the launch that runs."""
        return self.alive and not self.resting

    @property
    def first(self) -> bool:
        """Whether this is this run's first launch."""
        return self.error is None

    @property
    def unavoidable(self) -> float:
        """Seconds that this subject takes by itself in all its launches: import, build, first steps, warm-up, timed calls."""
        own = sum(
            each.import_seconds
            + each.build_seconds
            + each.first_step_seconds
            + each.second_step_seconds
            + each.warmup_seconds
            for each in self.launches
        )
        return own + sum(sample.seconds for sample in self.samples)

    @contextmanager
    def step(self, doing: str) -> Iterator[None]:
        """Announce a step, and keep its failure."""
        if doing:
            self.listener.phase(self.label, doing)
        try:
            yield
        except SubjectError as error:
            self.failure = self.failure or error
            if self.launches:  # what was timed in part has nothing to be paired with
                self.samples = [sample for sample in self.samples if sample.launch < self.launch]
            self.worker.close()

    def abandon(self, reason: str) -> None:
        """End a candidate that has not failed by itself: its reason is the run's, however its process dies."""
        self.failure = self.failure or Failed(reason)
        self.worker.kill()

    def renew(self, worker: Worker, started: Future[dict[str, Any]]) -> None:
        """Go on with another process, for the next launch."""
        self.worker.close()
        shutil.rmtree(self.worker.folder, ignore_errors=True)  # its outputs have been compared
        self.worker, self.launch = worker, self.launch + 1
        self.kept, self.unfinished = {}, []
        with self.step(""):
            self.started = started.result()

    def start(self) -> None:
        """Start the process and import the framework, unless its mode cannot hold the model."""
        refused = self.adapter.refuses(self.model, self.mode)
        if self.request.device not in self.adapter.devices:
            refused = f"runs on {' or '.join(self.adapter.devices)} alone, here"
        if refused:
            self.failure = Unsupported(refused)
            return
        slow = self.adapter.slow_start()
        with self.step("importing" + (f" ({slow})" if slow else "")):
            self.started = self.worker.start()
            self._check_environment()

    def _check_environment(self) -> None:
        """Raise Failed when the framework is not the one of the launches that this one is put beside."""
        found = self.started["environment"]
        for name, value in self.expected.items():
            if found.get(name) != value:
                raise Failed(f"--resume: its launches so far had {name} {value}, this one has {found.get(name)}")

    def build(self, reference: Reference) -> None:
        """Build the model, load the weights and read them back."""
        if not self.active:
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

    def prove(self, fused_parameters: dict[str, tuple[str, ...]]) -> None:
        """Read the weights again in the form that every framework of the run can hold, when that is not the canonical one."""
        if self.active and fused_parameters:
            with self.step(""):
                self.loaded = self.worker.request("digest", fused_parameters=fused_parameters)

    def warm(self, reference: Reference) -> None:
        """First step, second step, and warm-up: on the clock, so nothing else may run."""
        if not self.active:
            return
        with self.step("first step, warming up"):
            self.prepared = self._prepare(reference)
            if self.request.warmup is not None:
                self.warmed = self._warm_calls(self.request.warmup)
                self.warmed["steady"] = None
            else:
                self.warmed = self._warm_until_steady()
            self.graph_count = self.worker.request("graph_count")["graph_count"]
            self.faults = self.worker.page_faults()
            self.listener.warm(self.label, self.request.batch / self.seconds_per_call)

    def _prepare(self, reference: Reference) -> dict[str, Any]:
        """The first two steps; once more in a new process, when the framework's own compiler fell over and asks for that."""
        request = self.request
        operation = "prepare"
        arguments: dict[str, Any] = {"inputs": str(reference.inputs), "mode": self.mode}
        if request.optimizer is not None:
            operation = "learn"
            arguments |= {"inputs": str(reference.training), "optimizer": request.optimizer.to_dict()}
            arguments |= {"match": request.match_optimizer, "time_input": request.time_input}
        try:
            return self.worker.request(operation, **arguments)
        except Crashed:
            if not self.worker.wants_restart():
                raise
        self.listener.phase(self.label, "its compiler crashed: starting it again")
        self.worker.close()
        self.started = self.worker.start()
        self.build(reference)
        if reference.fused_parameters:
            self.prove(reference.fused_parameters)
        return self.worker.request(operation, **arguments)

    def _warm_calls(self, calls: int) -> dict[str, Any]:
        """So many calls, on no clock that counts. Where one is long, resident memory is watched meanwhile."""
        if not self.first or self.prepared["second_step_seconds"] < LONG_CALL or not calls:
            return self.worker.request("warm", calls=calls, seconds=0.0)
        self.average, reply = _average_rss(self.worker, lambda: self.worker.request("warm", calls=calls, seconds=0.0))
        return reply

    def _warm_until_steady(self) -> dict[str, Any]:
        """Call on every case, then run blocks until two windows of them agree: planning.steady."""
        cases = self.request.cases
        reply = self._warm_calls(cases)
        calls, seconds, per_call = reply["calls"], reply["seconds"], reply["seconds_per_call"]
        blocks: list[float] = []
        steady = False
        while not steady and (seconds < STEADY_SECONDS or len(blocks) < 4 * planning.window(cases)):
            size = planning.calls_a_block(per_call)
            took = self.worker.request("block", case=len(blocks) % cases, calls=size)["seconds"]
            per_call = took / size
            blocks.append(per_call)
            calls, seconds = calls + size, seconds + took
            steady = planning.steady(blocks, cases)
        per_call = statistics.median(blocks[-planning.window(cases) :])
        return {"calls": calls, "seconds": seconds, "seconds_per_call": per_call, "steady": steady}

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

    def block(self, gate: Gate, index: int, case: int, calls: int, keep: bool) -> str | None:
        """One timed block; why it is noisy, or None. keep: save the outputs of its last call, which are what is compared."""
        if not self.active:
            return None
        noisy = None
        with self.step(""):
            arguments: dict[str, Any] = {"case": case, "calls": calls}
            keep = keep and not self.request.trains  # a step's loss is of weights that no other subject has by then
            if keep:
                if not self.kept:
                    self.peak = self.worker.peak_rss_mib()  # what reading the outputs takes is not the framework's
                path = self.worker.folder / f"outputs-{case}.npz"
                arguments.update(keep=str(path), room=self.room)
            pid = self.worker.pid
            before = look(pid)
            reply = self.worker.request("block", **arguments)
            noisy = gate.block(before, look(pid))
            if keep:
                self.kept[case] = path
                self.unfinished.append(reply["unfinished_seconds"])
            self.samples.append(Sample(index, case, calls, reply["seconds"], self.launch))
        return noisy

    def drop(self, index: int, reason: str) -> None:
        """Do not count this launch's round of this number: another subject's block, or this one's, was noisy."""
        if self.samples and (self.samples[-1].launch, self.samples[-1].round) == (self.launch, index):
            self.samples[-1] = replace(self.samples[-1], dropped=reason)

    def finish(self) -> None:
        """After the clock: memory in one more pass, and any input case that too few calls left out."""
        if not self.active:
            return
        with self.step("measuring memory" if self.first else ""):
            faults = self.worker.page_faults()
            calls = sum(sample.calls for sample in self.samples if sample.launch == self.launch)
            retraces = None
            if self.graph_count is not None:
                retraces = self.worker.request("graph_count")["graph_count"] - self.graph_count
            if self.first:
                self.timed_cases = len(self.kept)
                if self.request.trains:  # no step can be kept from another: it moves weights
                    self.peak = self.worker.peak_rss_mib()
                else:
                    self._call_again()
                self._measure_memory()
                self.worker.request("release_memory")
            per_call = (faults - self.faults) / calls if faults is not None and self.faults is not None else None
            self.launches.append(replace(self.launched(), retraces=retraces, faults_per_call=per_call))

    def _call_again(self) -> None:
        """One more call on each input, each on another than the call before: the last timed block's input comes last.

        Kept are the second outputs of that one, and the outputs of inputs that too few timed calls left out.
        """
        cases, last = self.request.cases, self.samples[-1].case
        self.again = self.worker.folder / "again.npz"
        seconds: list[float] = []
        for case in [(last + step) % cases for step in range(1, cases + 1)]:
            path = self.again if case == last else self.worker.folder / f"outputs-{case}.npz"
            wanted = case == last or case not in self.kept
            reply = self.worker.request("block", case=case, calls=1, keep=str(path) if wanted else None)
            seconds.append(reply["seconds"])
            if case != last:
                self.kept.setdefault(case, path)
        if cases > 1:
            self.alone = min(seconds)

    def launched(self) -> Launch:
        """The launch that runs, as far as it has come: it is warm."""
        return Launch(
            launch=self.launch,
            import_seconds=self.started["seconds"],
            build_seconds=self.built["seconds"],
            first_step_seconds=self.prepared["first_step_seconds"],
            second_step_seconds=self.prepared["second_step_seconds"],
            warmup_calls=self.warmed["calls"],
            warmup_seconds=self.warmed["seconds"],
            steady=self.warmed["steady"],
        )

    def _measure_memory(self) -> None:
        if self.average is None:
            self.average, _ = _average_rss(self.worker, lambda: self.worker.request("warm", calls=1, seconds=0.1))
        device = self.worker.request("device_memory") if self.request.device != "cpu" else {}
        self.memory = Memory(
            self.peak,
            self.average,
            self.worker.import_rss_mib,
            gpu_peak_mib=device.get("peak_mib"),
            gpu_process_mib=host.gpu_process_mib(self.worker.pid) if device else None,
            gpu_used_mib=device.get("used_mib"),
            gpu_total_mib=device.get("total_mib"),
        )

    @property
    def build_key(self) -> tuple[str, str]:
        """Subjects with the same key build the same model, so the layers of one speak for all."""
        return self.adapter.name, str(self.adapter.mode_options.get(self.mode, {}))

    def capture(self, reference: Reference) -> bool:
        """One untimed pass that writes down what the layers take and give; whether anything was captured.

        Layers that the framework has under other names, and no names.toml to say so, are matched by order and shape. Raises
        SubjectError, which takes nothing from what was timed.
        """
        self.listener.phase(self.label, "capturing its layers")
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
            range(self.request.cases),
            reference.floors,
            self.layers,
            reference.constant,
        )
        if error.verdict == "DIFFERENT":
            share = compare.unsteady(outputs, npz.OnDisk(self.again))
            if share > compare.UNSTEADY:
                reason = f"two calls on one input differ by {share:.2g} of the result: dropout or another random operation is on"
                error = replace(error, verdict="INVALID", reason=f"{reason}; {error.reason}")
        self.error = replace(error, timed_cases=self.timed_cases)

    def learner(self) -> Learner:
        """This candidate as one that learns: it has made its first step."""
        settings = Optimizer.from_dict(self.prepared["optimizer"])
        held, key = tuple(self.prepared["held"]), (*self.build_key, str(self.request.match_optimizer))
        return Learner(self.label, self.worker, settings, held, self.built["fused_parameters"], key)

    def judge_training(self, parity: TrainingParity, reference: Reference, observed: Future[Observed] | None) -> None:
        """Climb the parity. What ends it early fails the candidate, whose speed would be of nothing known."""
        if not self.alive or observed is None:
            return
        if self.loaded["digest"] != reference.digest:
            mine = self.loaded["digest"]
            reason = f"other weights after loading: digest {mine}, the reference has {reference.digest}"
            self.error = Error("INVALID", reason)
            self.training = Training(parity.optimizer.says(), checks=(Check("weights", 0, "INVALID", says=reason),))
            return
        with self.step("climbing the parity of training"):
            self.error, self.training = parity.judge(self.learner(), observed.result())

    def judge_training_again(self, parity: TrainingParity, reference: Reference) -> None:
        """Look at a later launch, too: its weights, and one step."""
        if not self.active or self.error is None:
            return
        with self.step(""):
            if self.loaded["digest"] != reference.digest:
                self.error = replace(
                    self.error, verdict="INVALID", reason="other weights after loading in a later launch"
                )
            else:
                self.error = parity.again(self.learner(), self.error)

    def judge_again(self, reference: Reference) -> None:
        """Compare what a later launch computed, too: its weights, and the outputs of its last timed calls."""
        if not self.active or self.error is None or not self.kept:
            return
        digest = self.loaded["digest"]
        if digest != reference.digest:
            error = Error(
                "INVALID", f"other weights after loading: digest {digest}, the reference has {reference.digest}"
            )
        else:
            outputs = npz.OnDisk(*self.kept.values())
            cases = sorted(self.kept)
            error = compare.compare(
                outputs,
                reference.truth,
                reference.float32,
                self.model.spec,
                cases,
                reference.floors,
                self.error.layers,
                reference.constant,
            )
        if WORSE.index(error.verdict) > WORSE.index(self.error.verdict):
            reason = f"in launch {self.launch + 1}: {error.reason}"
            self.error = replace(error, reason=reason, timed_cases=self.error.timed_cases)

    def row(self, speed: Speed | None) -> Row:
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
            speed=speed,
            memory=self.memory,
            environment=self.started.get("environment", {}),
            training=self.training,
        )


def _route(adapter: type[Framework], reference: Reference, by_onnx: bool) -> str:
    if adapter.runs_export:
        return f"{reference.framework} -> ONNX"
    if by_onnx:
        return f"{reference.framework} -> ONNX -> {adapter.name}"
    return f"canonical -> {adapter.name}"


def _average_rss(worker: Worker, work: Callable[[], dict[str, Any]]) -> tuple[float | None, dict[str, Any]]:
    """Mean resident memory in MiB while ``work`` runs, sampled every 10 ms; and what it returns."""
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
        reply = work()
    finally:
        done.set()
        sampler.join()
    return sum(samples) / len(samples) if samples else None, reply
