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
from ..progress import Listener
from ..reference.reference import Reference
from ..reference.request import Request, resolve
from ..results.records import Layers, Result, overall
from ..timing import noise
from ..timing import statistics as timing
from ..timing.speed import fault, log_ratios, speeds
from ..training.parity import Observed, TrainingParity
from ..verdict import outputs as compare
from ..worker.messages import Started
from ..worker.process import Worker
from ..workload import optimizers
from ..workload.spec import ModelFolder
from .candidate import Candidate
from .resume import Earlier, earlier_run


def run(
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None = None,
    *,
    json: str | Path | None = None,
    resume: bool = False,
    listener: Listener | None = None,
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
        return _in_turn(list(dict.fromkeys(tasks)), model, subjects, file, resume, listener or Listener(), settings)
    request, folder = resolve(model, subjects, task=tasks[0] if tasks else "", **settings)
    earlier = None
    if resume:
        if file is None:
            raise UsageError("--resume goes on with the run of a result file: name it with --json FILE")
        earlier = earlier_run(file, request, folder)
        if earlier is not None and earlier.finished(request):
            raise UsageError(f"{file} is complete: there is nothing to resume; a higher --effort would add launches")
    return Run(request, folder, listener or Listener(), file, earlier).execute()


def _in_turn(
    tasks: list[str],
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None,
    file: Path | None,
    resume: bool,
    listener: Listener,
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
        done = Run(request, folder, listener, None).execute()
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
        self,
        request: Request,
        folder: ModelFolder,
        listener: Listener,
        file: Path | None,
        earlier: Earlier | None = None,
    ) -> None:
        self.request, self.folder, self.listener, self.file = request, folder, listener, file
        self.effort = timing.EFFORTS[request.effort]
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.notes = list(request.notes)
        self.clock = Clock(request.max_seconds)
        self.seen = noise.Seen()
        self.earlier = earlier
        self.complete = False
        self.parity: TrainingParity | None = None
        self.fused_parameters: dict[str, tuple[str, ...]] = {}
        self.launch_seconds: list[float] = []
        self.workers: list[Worker] = []
        self.coming: dict[str, tuple[Worker, Future[Started]]] = {}

    def execute(self) -> Result:
        """Run the request to its result."""
        for note in self.notes:
            self.listener.note(note)
        with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
            self.space = Path(directory)
            adapter = frameworks.load(self.request.reference)
            worker = self._worker(adapter, self.space / "reference", "reference")
            self.reference = Reference(self.request, self.folder, worker, self.listener)
            self.candidates = []
            for index, subject in enumerate(self.request.subjects):
                adapter, mode = frameworks.parse_subject(subject)
                worker = self._worker(adapter, self.space / f"subject-{index}", subject)
                self.candidates.append(Candidate(self.request, self.folder, adapter, mode, worker, self.listener))
            if self.earlier is not None:
                self.earlier.into(self.candidates, self.seen)
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
        rows = tuple(candidate.row(speed) for candidate, speed in zip(self.candidates, speeds(self.candidates, noisy)))
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
                "unavoidable_seconds": sum(candidate.unavoidable for candidate in self.candidates),
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
                for candidate in self.candidates:
                    if self.parity is not None:
                        candidate.judge_training_again(self.parity, self.reference)
                    else:
                        candidate.judge_again(self.reference)
            self._begin_next()

    def _settle(self) -> None:
        """Settle what every subject gets, and build the first launch's processes."""
        reference, candidates = self.reference, self.candidates
        by_onnx = [
            candidate
            for candidate in candidates
            if candidate.adapter.runs_export or candidate.adapter.weights_route == "onnx"
        ]
        try:
            started = {candidate.label: self.beside.submit(candidate.start) for candidate in candidates}

            def build(candidate: Candidate) -> None:
                started[candidate.label].result()
                candidate.build(reference)

            reference.settle()
            built = [self.beside.submit(build, candidate) for candidate in candidates if candidate not in by_onnx]
            reference.export()
            built += [self.beside.submit(build, candidate) for candidate in by_onnx]
            reference.check()
            for done in built:
                done.result()
        except BaseException as error:
            self.beside.shutdown(wait=False, cancel_futures=True)
            self._abandon(error)
            raise
        self.fused_parameters = {
            name: tuple(parts)
            for candidate in candidates
            for name, parts in candidate.built.get("fused_parameters", {}).items()
        }
        reference.take_normal_form(self.fused_parameters)
        for candidate in candidates:
            candidate.prove(self.fused_parameters)

    def _launch(self) -> None:
        """Warm up and time the processes that stand ready, write down what there is, and say it."""
        begun = time.monotonic()
        with self.clock.doing("warming"):
            for candidate in self.candidates:
                candidate.warm(self.reference)
        with self.clock.doing("timing"):
            self._interleave([candidate for candidate in self.candidates if candidate.active])
        with self.clock.doing("judging"):
            for candidate in self.candidates:
                candidate.finish()
        self.launch_seconds.append(time.monotonic() - begun)
        if self.file is not None:
            self.result().write(self.file)
        done = max((len(candidate.launches) for candidate in self.candidates), default=0)
        if done:
            self.listener.launched(done, self.effort.least, "; ".join(self._so_far()))

    def _so_far(self) -> Iterator[str]:
        for candidate, speed in zip(self.candidates, speeds(self.candidates)):
            if speed is not None:
                beside = (
                    f" ({speed.ratio:.3f} x)" if speed.ratio is not None and candidate is not self.candidates[0] else ""
                )
                yield f"{candidate.label} {speed.fps:,.4g} a second{beside}"

    def _interleave(self, candidates: list[Candidate]) -> None:
        """Rounds of one block a subject, one subject at a time; each round on the next input case."""
        if not candidates:
            return
        request, gate = self.request, noise.Gate()
        by_label = {candidate.label: candidate for candidate in candidates}
        launch = max(candidate.launch for candidate in candidates)
        seconds = timing.LAUNCH_SECONDS if self.clock.left is None else min(timing.LAUNCH_SECONDS, self.clock.left / 2)
        plan = timing.plan(
            {label: candidate.seconds_per_call for label, candidate in by_label.items()},
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
                for candidate in candidates:
                    candidate.drop(index, noisy)
            done = index + 1
            self.listener.timing(done, plan.rounds, (time.monotonic() - begun) / done * (plan.rounds - done))
        self.seen.add(gate)

    # -- launch after launch ------------------------------------------------------------------------------------------

    def _begin_next(self) -> None:
        """Start the next launch's processes beside whatever else there is to do, unless there is to be none."""
        self.coming = {}
        candidates = [
            candidate
            for candidate in self.candidates
            if candidate.active and (candidate.error is None or fault(candidate) is None)
        ]
        if not self._wants_more(candidates):
            return
        for candidate in candidates:
            place = self.space / f"subject-{self.candidates.index(candidate)}-launch-{candidate.launch + 1}"
            worker = self._worker(candidate.adapter, place, candidate.label)
            self.coming[candidate.label] = worker, self.beside.submit(worker.start)

    def _wants_more(self, candidates: list[Candidate]) -> bool:
        """Whether another launch of these would tell more, and there is time for one."""
        baseline = self.candidates[0]
        if baseline not in candidates or (len(candidates) == 1 and len(self.candidates) > 1):
            return False
        if len(candidates) == 1:
            seconds = [math.log(one) for one in timing.launch_seconds(timing.clean(baseline.samples))]
            medians = [seconds]
        else:
            medians = [log_ratios(candidate, baseline) for candidate in candidates if candidate is not baseline]
        done = len(baseline.launches)
        if done >= self.effort.most or timing.enough(medians, self.effort):
            return False
        if done >= HOPELESS and self.seen.refusal():
            return False  # more launches on this machine would be as noisy
        starts = sum(
            candidate.launches[-1].import_seconds + candidate.launches[-1].build_seconds for candidate in candidates
        )
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
        """Let the processes that were started be the candidates' own, and build their models; whether there is a launch."""
        coming, self.coming = self.coming, {}
        going = [candidate for candidate in self.candidates if candidate.label in coming and fault(candidate) is None]
        if not self._wants_more(going):
            going = []
        for label, (worker, started) in coming.items():
            if label not in {candidate.label for candidate in going}:
                started.cancel()
                worker.close()
        for candidate in self.candidates:
            candidate.resting = candidate not in going
        for candidate in going:
            candidate.renew(*coming[candidate.label])
        for built in [self.beside.submit(candidate.build, self.reference) for candidate in going]:
            built.result()
        for candidate in going:
            candidate.prove(self.fused_parameters)
        return bool(going)

    def _judge(self) -> None:
        if self.request.trains:
            self.parity = TrainingParity(self.request, self.reference)
            # A subject that is the reference's own code has been timed; where none is, the reference makes two steps to tell.
            own = (self.reference.framework, "eager")
            same = [
                candidate
                for candidate in self.candidates
                if candidate.active and (candidate.adapter.name, candidate.mode) == own
            ]
            self.parity.prepare(seconds=max((candidate.seconds_per_call for candidate in same), default=0.0))
            self._judge_training(self.parity)
            return
        self.reference.evaluate()
        self._replay()
        with ThreadPoolExecutor(host.cores()) as pool:  # numpy's loops let go of the interpreter
            for done in [pool.submit(candidate.judge, self.reference) for candidate in self.candidates]:
                done.result()

    def _judge_training(self, parity: TrainingParity) -> None:
        """Judge every candidate, while the next one does by itself what is judged of it then."""

        def observe(candidate: Candidate | None) -> Future[Observed] | None:
            return (
                self.beside.submit(parity.observe, candidate.learner())
                if candidate is not None and candidate.alive
                else None
            )

        observed = observe(self.candidates[0])
        for candidate, following in zip_longest(self.candidates, self.candidates[1:]):
            if observed is not None:
                wait([observed])
            coming = observe(following)
            candidate.judge_training(parity, self.reference, observed)
            candidate.worker.close()
            observed = coming

    def _replay(self) -> None:
        """Judge the layers of every framework, once for all its modes that build the same model."""
        done: dict[tuple[str, str], Layers] = {}
        for candidate in self.candidates:
            if candidate.alive and self.reference.list_layers() and candidate.build_key not in done:
                done[candidate.build_key] = self._replayed(candidate)
            candidate.worker.close()
        for candidate in self.candidates:
            candidate.layers = done.get(candidate.build_key)

    def _replayed(self, candidate: Candidate) -> Layers:
        """What a replay of this candidate found. What stops it takes nothing from the outputs that were timed."""
        reference, known = self.reference, len(self.reference.list_layers())
        if self.clock.left is not None and self.clock.left <= 0:
            return Layers(known=known, subject=candidate.label, stopped="--max-seconds left no time for its layers")
        try:
            if not candidate.capture(reference):
                return Layers(known=known, subject=candidate.label)
            return reference.replay(candidate.captured, candidate.captured_in, candidate.label, candidate.matched)
        except SubjectError as error:
            return Layers(known=known, subject=candidate.label, stopped=f"layers not compared: {error}")
        finally:
            shutil.rmtree(candidate.captured_in, ignore_errors=True)

    def _abandon(self, error: BaseException) -> None:
        reason = "interrupted by the user"
        if not isinstance(error, KeyboardInterrupt):
            status = f"{error.status}: " if isinstance(error, SubjectError) else ""
            reason = f"no reference: {self.request.reference} {status}{error}"
        for candidate in self.candidates:
            candidate.abandon(reason)

    def _worker(self, adapter: type[Framework], place: Path, label: str) -> Worker:
        place.mkdir()
        request = self.request
        python = request.python.get(adapter.name, sys.executable)
        reference = label == "reference"
        device = "cpu" if reference else request.device  # what is right is computed where float64 is at home

        def beat(seconds: float, line: str) -> None:
            self.listener.beat(label, seconds, line)

        worker = Worker(adapter, python, place, request.threads, device, request.timeout, request.pin, reference, beat)
        self.workers.append(worker)
        return worker


def _check_writable(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"--json {path} is a folder: name a file in it")
    if not path.absolute().parent.is_dir():
        raise UsageError(f"--json {path}: the folder {path.absolute().parent} does not exist")
