"""The straight line: spec -> weights -> inputs -> workers -> samples -> comparison -> verdict -> report."""

from __future__ import annotations

import datetime
import inspect
import math
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .. import __version__, host
from ..errors import SubjectError, UsageError
from ..framework import discovery as frameworks
from ..framework.adapter import Framework
from ..progress import Watch
from ..reference.reference import Reference
from ..reference.request import Request, resolve
from ..results.records import Layers, Result, overall
from ..timing import noise
from ..timing import statistics as timing
from ..timing.speed import fault, log_ratios, speeds
from ..training.parity import Ladder, Observed
from ..verdict import outputs as compare
from ..worker.process import Worker
from ..workload import optimizers
from ..workload.spec import ModelFolder
from .candidate import Lane
from .resume import Earlier, earlier_run


def run(
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None = None,
    *,
    json: str | Path | None = None,
    resume: bool = False,
    watch: Watch | None = None,
    **settings: Any,
) -> Result:
    """Verify and time a model: what ``xverify run`` does, with the same options, returning the same records.

    model: a name of the zoo, or a model folder. subjects: e.g. ``["torch:eager", "jittor"]``; the first is the baseline;
    None runs every installed framework that the model has. json: where to write the result file, again after every launch.
    resume: go on with the launches that this file lacks. settings: ``batch, warmup, rerun, effort, max_seconds, threads, pin,
    device, seed, cases, weights, trust, python, timeout, strict``, as on the command line.

    A subject that cannot run becomes a row with its status and reason. Raises UsageError for what cannot be run at all.
    """
    file = Path(json) if json is not None else None
    if file is not None:
        _check_writable(file)
    tasks = [task.strip() for task in settings.pop("task", "forward").split(",") if task.strip()]
    if len(tasks) > 1:
        return _in_turn(list(dict.fromkeys(tasks)), model, subjects, file, resume, watch or Watch(), settings)
    request, folder = resolve(model, subjects, task=tasks[0] if tasks else "", **settings)
    earlier = None
    if resume:
        if file is None:
            raise UsageError("--resume goes on with the run of a result file: name it with --json FILE")
        earlier = earlier_run(file, request, folder)
        if earlier is not None and earlier.finished(request):
            raise UsageError(f"{file} is complete: there is nothing to resume; a higher --effort would add launches")
    return Run(request, folder, watch or Watch(), file, earlier).execute()


def _in_turn(
    tasks: list[str],
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None,
    file: Path | None,
    resume: bool,
    watch: Watch,
    settings: dict[str, Any],
) -> Result:
    """One task after another, to one result with the rows of all."""
    if resume:
        raise UsageError(f"--resume goes on with one task: the tasks are {', '.join(tasks)}")
    learning = (
        *inspect.signature(optimizers.optimizer).parameters,
        "optimizer",
        "match_optimizer",
        "data",
        "time_input",
    )
    requests = [
        resolve(
            model, subjects, task=task, **{k: v for k, v in settings.items() if task == "train" or k not in learning}
        )
        for task in tasks
    ]
    whole: Result | None = None
    for request, folder in requests:
        done = Run(request, folder, watch, None).execute()
        if whole is not None:
            rows = (*whole.rows, *done.rows)
            timeline = {name: whole.timeline.get(name, 0.0) + seconds for name, seconds in done.timeline.items()}
            done = replace(
                done, tasks=(*whole.tasks, *done.tasks), rows=rows, verdict=overall(rows, request.strict),
                created=whole.created, timeline=timeline, notes=tuple(dict.fromkeys((*whole.notes, *done.notes))),
            )  # fmt: skip
        whole = replace(done, complete=done.complete and request is requests[-1][0])
        if file is not None:
            whole.write(file)
        if any(note.startswith("interrupted") for note in done.notes):
            break
    assert whole is not None
    return whole


KEPT = 4
HOPELESS = 3  # launches after which a machine that is too noisy is not tried any further


class Clock:
    """Where a run's seconds go, by what it is doing."""

    def __init__(self, budget: float | None) -> None:
        self.begun = time.monotonic()
        self.deadline = self.begun + budget if budget else None
        self.spent: dict[str, float] = defaultdict(float)

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        start = time.monotonic()
        try:
            yield
        finally:
            self.spent[what] += time.monotonic() - start

    @property
    def left(self) -> float | None:
        """Seconds until --max-seconds is over; None without."""
        return None if self.deadline is None else self.deadline - time.monotonic()


class Run:
    """One request on its way to its result. Nothing that was measured is lost when a subject, or the user, ends early.

    file: where the result is written after every launch, and at the end. earlier: launches of a run that this one goes on with.
    """

    def __init__(
        self, request: Request, folder: ModelFolder, watch: Watch, file: Path | None, earlier: Earlier | None = None
    ) -> None:
        self.request, self.folder, self.watch, self.file = request, folder, watch, file
        self.effort = timing.EFFORTS[request.effort]
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.notes = list(request.notes)
        self.clock = Clock(request.max_seconds)
        self.seen = noise.Seen()
        self.earlier = earlier
        self.complete = False
        self.ladder: Ladder | None = None
        self.merges: dict[str, tuple[str, ...]] = {}
        self.launch_seconds: list[float] = []
        self.workers: list[Worker] = []
        self.coming: dict[str, tuple[Worker, Future[dict[str, Any]]]] = {}

    def execute(self) -> Result:
        """Run the request to its result."""
        for note in self.notes:
            self.watch.note(note)
        with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
            self.space = Path(directory)
            adapter = frameworks.load(self.request.reference)
            worker = self._worker(adapter, self.space / "reference", "reference")
            self.reference = Reference(self.request, self.folder, worker, self.watch)
            self.lanes = []
            for index, subject in enumerate(self.request.subjects):
                adapter, mode = frameworks.parse_subject(subject)
                worker = self._worker(adapter, self.space / f"subject-{index}", subject)
                self.lanes.append(Lane(self.request, self.folder, adapter, mode, worker, self.watch))
            if self.earlier is not None:
                self.earlier.into(self.lanes, self.seen)
            self.beside = ThreadPoolExecutor(max_workers=min(2, host.cores()))
            try:
                self._measure()
                self.complete = True
            except SubjectError as error:
                self._abandon(error)
            except KeyboardInterrupt as error:
                self.notes.append("interrupted: what had been measured by then is here")
                self._abandon(error)
            finally:
                self.beside.shutdown(wait=False, cancel_futures=True)
                for worker in self.workers:
                    worker.close()
        result = self.result()
        if self.file is not None:
            result.write(self.file)
        return result

    def result(self) -> Result:
        """What there is by now."""
        reference = self.reference
        noisy = self.seen.refusal()
        rows = tuple(lane.row(speed) for lane, speed in zip(self.lanes, speeds(self.lanes, noisy)))
        return Result(
            model=self.folder.name,
            tasks=(self.request.task,),
            verdict=overall(rows, self.request.strict),
            rows=rows,
            created=self.created,
            xverify=__version__,
            host=host.describe(),
            settings={**asdict(self.request), "folder_digest": self.folder.digest()},
            weights=reference.describe_weights(),
            inputs=reference.describe_inputs(),
            reference=reference.describe(),
            rule=compare.RULE,
            notes=(*self.notes, *([reference.onnx_problem] if reference.onnx_problem else [])),
            timeline={
                **{f"{what}_seconds": seconds for what, seconds in self.clock.spent.items()},
                "total_seconds": time.monotonic() - self.clock.begun,
                "unavoidable_seconds": sum(lane.unavoidable for lane in self.lanes),
            },
            item=self.folder.spec.item,
            noise=self.seen.describe(),
            complete=self.complete,
        )

    # -- the line -----------------------------------------------------------------------------------------------------

    def _measure(self) -> None:
        """From processes to verdicts. What is on no clock runs beside other such work; the rest has the machine alone."""
        with self.clock.doing("starting"):
            self._settle()
        self._launch()
        self._begin_next()
        with self.clock.doing("judging"):
            self._judge()
        while True:
            with self.clock.doing("starting"):
                if not self._take_next():
                    return
            self._launch()
            with self.clock.doing("judging"):
                for lane in self.lanes:
                    if self.ladder is not None:
                        lane.judge_training_again(self.ladder, self.reference)
                    else:
                        lane.judge_again(self.reference)
            self._begin_next()

    def _settle(self) -> None:
        """Settle what every subject gets, and build the first launch's processes."""
        reference, lanes = self.reference, self.lanes
        by_onnx = [lane for lane in lanes if lane.adapter.runs_export or lane.adapter.weights_route == "onnx"]
        try:
            started = {lane.label: self.beside.submit(lane.start) for lane in lanes}

            def build(lane: Lane) -> None:
                started[lane.label].result()
                lane.build(reference)

            reference.settle()
            built = [self.beside.submit(build, lane) for lane in lanes if lane not in by_onnx]
            reference.export()
            built += [self.beside.submit(build, lane) for lane in by_onnx]
            reference.check()
            for done in built:
                done.result()
        except BaseException as error:
            self.beside.shutdown(wait=False, cancel_futures=True)
            self._abandon(error)
            raise
        self.merges = {name: tuple(parts) for lane in lanes for name, parts in lane.built.get("merges", {}).items()}
        reference.take_normal_form(self.merges)
        for lane in lanes:
            lane.prove(self.merges)

    def _launch(self) -> None:
        """Warm up and time the processes that stand ready, write down what there is, and say it."""
        begun = time.monotonic()
        with self.clock.doing("warming"):
            for lane in self.lanes:
                lane.warm(self.reference)
        with self.clock.doing("timing"):
            self._interleave([lane for lane in self.lanes if lane.active])
        with self.clock.doing("judging"):
            for lane in self.lanes:
                lane.finish()
        self.launch_seconds.append(time.monotonic() - begun)
        if self.file is not None:
            self.result().write(self.file)
        done = max((len(lane.launches) for lane in self.lanes), default=0)
        if done:
            self.watch.launched(done, self.effort.least, "; ".join(self._so_far()))

    def _so_far(self) -> Iterator[str]:
        for lane, speed in zip(self.lanes, speeds(self.lanes)):
            if speed is not None:
                beside = f" ({speed.ratio:.3f} x)" if speed.ratio is not None and lane is not self.lanes[0] else ""
                yield f"{lane.label} {speed.fps:,.4g} a second{beside}"

    def _interleave(self, lanes: list[Lane]) -> None:
        """Rounds of one block a subject, one subject at a time; each round on the next input case."""
        if not lanes:
            return
        request, gate = self.request, noise.Gate()
        by_label = {lane.label: lane for lane in lanes}
        launch = max(lane.launch for lane in lanes)
        seconds = timing.LAUNCH_SECONDS if self.clock.left is None else min(timing.LAUNCH_SECONDS, self.clock.left / 2)
        plan = timing.plan(
            {label: lane.seconds_per_call for label, lane in by_label.items()},
            request.cases,
            request.rerun,
            self.effort.rounds,
            seconds,
        )
        begun = time.monotonic()
        for index, order in enumerate(timing.orders(list(by_label), plan.rounds, request.seed + launch)):
            # The last block on each case is kept; four at least, since what wait left undone must show in every one of them.
            keep = index + max(request.cases, KEPT) >= plan.rounds
            reasons = {gate.canary()}
            for label in order:
                calls = plan.calls[label][index]
                reasons.add(by_label[label].block(gate, index, index % request.cases, calls, keep))
            noisy = gate.round({reason for reason in reasons if reason})
            if noisy:
                for lane in lanes:
                    lane.drop(index, noisy)
            done = index + 1
            self.watch.timing(done, plan.rounds, (time.monotonic() - begun) / done * (plan.rounds - done))
        self.seen.add(gate)

    # -- launch after launch ------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """Start the next launch's processes beside whatever else there is to do, unless there is to be none."""
        self.coming = {}
        lanes = [lane for lane in self.lanes if lane.active and (lane.error is None or fault(lane) is None)]
        if not self._wants_more(lanes):
            return
        for lane in lanes:
            place = self.space / f"subject-{self.lanes.index(lane)}-launch-{lane.launch + 1}"
            worker = self._worker(lane.adapter, place, lane.label)
            self.coming[lane.label] = worker, self.beside.submit(worker.start)

    def _wants_more(self, lanes: list[Lane]) -> bool:
        """Whether another launch of these would tell more, and there is time for one."""
        baseline = self.lanes[0]
        if baseline not in lanes or (len(lanes) == 1 and len(self.lanes) > 1):
            return False
        if len(lanes) == 1:
            seconds = [math.log(one) for one in timing.launch_seconds(timing.clean(baseline.samples))]
            medians = [seconds]
        else:
            medians = [log_ratios(lane, baseline) for lane in lanes if lane is not baseline]
        done = len(baseline.launches)
        if done >= self.effort.most or timing.enough(medians, self.effort):
            return False
        if done >= HOPELESS and self.seen.refusal():
            return False  # more launches on this machine would be as noisy
        starts = sum(lane.launches[-1].import_seconds + lane.launches[-1].build_seconds for lane in lanes)
        left, needed = self.clock.left, max(self.launch_seconds, default=0.0) + starts
        if left is None or left > needed:
            return True
        note = (
            f"--max-seconds {self.request.max_seconds:g} ended it after {done} of at least {self.effort.least} launches"
        )
        if note not in self.notes:
            self.notes.append(note)
        return False

    def _take_next(self) -> bool:
        """Let the processes that were started be the lanes' own, and build their models; whether there is a launch."""
        coming, self.coming = self.coming, {}
        going = [lane for lane in self.lanes if lane.label in coming and fault(lane) is None]
        if not self._wants_more(going):
            going = []
        for label, (worker, started) in coming.items():
            if label not in {lane.label for lane in going}:
                started.cancel()
                worker.close()
        for lane in self.lanes:
            lane.resting = lane not in going
        for lane in going:
            lane.renew(*coming[lane.label])
        for built in [self.beside.submit(lane.build, self.reference) for lane in going]:
            built.result()
        for lane in going:
            lane.prove(self.merges)
        return bool(going)

    def _judge(self) -> None:
        if self.request.trains:
            self.ladder = Ladder(self.request, self.reference)
            # A subject that is the reference's own code has been timed; where none is, the reference makes two steps to tell.
            own = (self.reference.framework, "eager")
            same = [lane for lane in self.lanes if lane.active and (lane.adapter.name, lane.mode) == own]
            self.ladder.prepare(seconds=max((lane.seconds_per_call for lane in same), default=0.0))
            self._climb(self.ladder)
            return
        self.reference.evaluate()
        self._replay()
        with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops let go of the interpreter
            for done in [pool.submit(lane.judge, self.reference) for lane in self.lanes]:
                done.result()

    def _climb(self, ladder: Ladder) -> None:
        """Judge every lane, while the next one does by itself what is judged of it then."""

        def observe(lane: Lane | None) -> Future[Observed] | None:
            return self.beside.submit(ladder.observe, lane.learner()) if lane is not None and lane.alive else None

        observed = observe(self.lanes[0])
        for lane, following in zip_longest(self.lanes, self.lanes[1:]):
            if observed is not None:
                wait([observed])
            coming = observe(following)
            lane.judge_training(ladder, self.reference, observed)
            lane.worker.close()
            observed = coming

    def _replay(self) -> None:
        """Judge the layers of every framework, once for all its modes that build the same model."""
        done: dict[tuple[str, str], Layers] = {}
        for lane in self.lanes:
            if lane.alive and self.reference.list_layers() and lane.build_key not in done:
                done[lane.build_key] = self._replayed(lane)
            lane.worker.close()
        for lane in self.lanes:
            lane.layers = done.get(lane.build_key)

    def _replayed(self, lane: Lane) -> Layers:
        """What a replay of this lane found. What stops it takes nothing from the outputs that were timed."""
        reference, known = self.reference, len(self.reference.list_layers())
        if self.clock.left is not None and self.clock.left <= 0:
            return Layers(known=known, subject=lane.label, stopped="--max-seconds left no time for its layers")
        try:
            if not lane.capture(reference):
                return Layers(known=known, subject=lane.label)
            return reference.replay(lane.captured, lane.captured_in, lane.label, lane.matched)
        except SubjectError as error:
            return Layers(known=known, subject=lane.label, stopped=f"layers not compared: {error}")
        finally:
            shutil.rmtree(lane.captured_in, ignore_errors=True)

    def _abandon(self, error: BaseException) -> None:
        reason = "interrupted by the user"
        if not isinstance(error, KeyboardInterrupt):
            status = f"{error.status}: " if isinstance(error, SubjectError) else ""
            reason = f"no reference: {self.request.reference} {status}{error}"
        for lane in self.lanes:
            lane.abandon(reason)

    def _worker(self, adapter: type[Framework], place: Path, label: str) -> Worker:
        place.mkdir()
        request = self.request
        python = request.python.get(adapter.name, sys.executable)
        reference = label == "reference"
        device = "cpu" if reference else request.device  # what is right is computed where float64 is at home
        worker = Worker(adapter, python, place, request.threads, device, request.timeout, request.pin, reference)
        worker.beat = lambda seconds, line: self.watch.beat(label, seconds, line)
        self.workers.append(worker)
        return worker


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--json {path} is a folder: name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--json {path}: the folder {path.absolute().parent} does not exist")
