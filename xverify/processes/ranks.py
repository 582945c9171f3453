"""Several workers that train one model together, as one worker: every rank gets every request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from ..errors import Crashed, Failed, SubjectError, TimedOut
from ..framework.ranks import MEETING, RunsOnRanks
from ..framework.runner import Runner
from ..messages import Capture, Started, Warm, Warmed
from ..messages.codec import ReplyType, Request
from ..messages.own_step import OwnStepsTaken, PrepareOwnStep
from ..messages.training import JoinRanks, PrepareTraining, StepTaken
from ..workload.launch import look_up
from ..workload.ranks import Ranks, shard_file
from .launcher import Place
from .worker import Worker

WAITS = 120.0  # seconds that a rank waits for the others in a collective operation, at most
GRACE = 5.0  # seconds that the other ranks get for their answer when one has failed
# Durations in replies, of which that of the slowest rank counts.
DURATIONS = ("seconds", "seconds_per_call", "first_step_seconds", "second_step_seconds")
# What gloo says when another rank does not come to a collective operation, and when it has ended.
WAITED = ("Timed out waiting", "timed out after", "wait timeout", "waiting for clients")
UNLIKE = "op.preamble.length <= op.nbytes"  # gloo, when ranks give an operation tensors of other sizes
LOST = ("Connection closed by peer", "Connection reset by peer", "Broken pipe")
T = TypeVar("T")


class RankedWorker(Worker):
    """The worker of rank 0, which gives every request to the workers of the other ranks, too.

    The reply to a request is that of rank 0, with the mean of the losses of all ranks, and the times of the slowest one. Memory and
    page faults are those of all ranks together. When a rank fails, the error names it, and all ranks end: those that are left would
    wait for it.

    ranks: how the training is divided. threads: of all ranks together. The other arguments are those of ``Worker``.
    """

    def __init__(
        self,
        ranks: Ranks,
        adapter: type[Runner],
        python: str,
        folder: Path,
        threads: int,
        device: str,
        timeout: float,
        *arguments: Any,
        **more: Any,
    ) -> None:
        threads = max(1, threads // ranks.count)
        super().__init__(adapter, python, folder, threads, device, timeout, *arguments, **more)
        self.ranks, self.others = ranks, list[Worker]()
        for rank in range(1, ranks.count):
            place = folder.with_name(f"{folder.name}-rank-{rank}")
            place.mkdir()
            self.others.append(Worker(adapter, python, place, threads, device, timeout, *arguments, **more))
        self.waits = min(WAITS, timeout / 2)
        self.joined = False
        self.broken: SubjectError | None = None  # the error with which the ranks have ended

    @property
    def folders(self) -> list[Path]:
        return [self.folder, *(each.folder for each in self.others)]

    @property
    def pids(self) -> list[int]:
        return [self.pid, *(each.pid for each in self.others)]

    def start(self) -> Started:
        self.joined, launch = False, self.ranks.launch and self.ranks.launch.at_an_address()
        if launch and launch.here:
            look_up(launch.address)
        for rank, each in enumerate([self, *self.others]):
            each.place = Place(launch, rank, self.ranks.count, self.waits) if launch else None
        started: Started = self._together(self._all([super().start, *(each.start for each in self.others)]))
        self.joined, self.import_rss_mib = True, self.rss_mib()
        meeting = launch.meeting if launch else f"file://{self.folder / 'meeting'}"
        self.ask(
            JoinRanks(0, self.ranks.count, self.ranks.plan, meeting, self.waits, self.ranks.shares, str(self.folder))
        )
        return started

    def close(self) -> None:
        # All at once, because processes of torchrun wait for one another at their end.
        with ThreadPoolExecutor(self.ranks.count) as pool:
            list(pool.map(Worker.close, [self, *self.others]))

    def kill(self) -> None:
        super().kill()
        for each in self.others:
            each.kill()

    def ask_each(self, request: Request[ReplyType]) -> list[ReplyType]:
        """Send a request to all ranks, and return the reply of each. Raises a SubjectError when a rank fails."""
        with self.asking:
            return self._answers(request)

    def _answered(self, request: Request[ReplyType]) -> ReplyType:
        if not self.joined:
            return super()._answered(request)
        reply: Any = self._together(self._answers(request))
        if isinstance(request, Warm) and reply.seconds < request.seconds:
            calls = math.ceil((request.seconds - reply.seconds) / max(reply.seconds_per_call, 1e-9))
            more: Any = self._answered(Warm(calls=calls, seconds=0.0))
            reply = Warmed(reply.calls + more.calls, reply.seconds + more.seconds, more.seconds_per_call)
        answer: ReplyType = reply
        return answer

    def _answers(self, request: Request[ReplyType]) -> list[ReplyType]:
        if self.broken is not None:
            raise self.broken
        for each in self.others:
            each.until = self.until
        asked: list[Callable[[], ReplyType]] = [partial(super()._answered, self._for_rank(request, 0))]
        asked += [partial(each.ask, self._for_rank(request, rank)) for rank, each in enumerate(self.others, 1)]
        return self._all(asked)

    def _for_rank(self, request: Any, rank: int) -> Any:
        """The request as a rank gets it: with its part of the batches, and files in its own folder.

        Ranks that end a warm-up by their own clocks would make other numbers of steps, and wait for each other for ever.
        """
        if isinstance(request, JoinRanks):
            return replace(request, rank=rank, folder=str(self.folders[rank]))
        if isinstance(request, Warm):
            return replace(request, calls=max(1, request.calls), seconds=0.0)
        if isinstance(request, PrepareOwnStep):
            return replace(request, training=self._for_rank(request.training, rank))
        changes: dict[str, Any] = {}
        if isinstance(request, (PrepareTraining, Capture)) and self.ranks.items:
            changes["inputs"] = str(shard_file(request.inputs, rank))
        for name in ("path", "folder"):
            path = getattr(request, name, "")
            if rank and path and Path(path).is_relative_to(self.folder):
                changes[name] = str(self.folders[rank] / Path(path).relative_to(self.folder))
        return replace(request, **changes) if changes else request

    def _all(self, calls: Sequence[Callable[[], T]]) -> list[T]:
        """What the call of each rank returns. Raises the error of the rank that failed first, and ends all ranks.

        An error that all ranks share, such as that of a model that cannot be built, leaves them alive.
        """
        with ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(each) for each in calls]
            try:
                late = self._await(futures)
            except BaseException:
                self.kill()
                raise
            failed = {rank: error for rank, each in enumerate(futures) if (error := each.exception()) is not None}
            if not failed:
                return [each.result() for each in futures]
            errors = {rank: error for rank, error in failed.items() if isinstance(error, SubjectError)}
            if len(errors) < len(failed):
                raise next(error for error in failed.values() if not isinstance(error, SubjectError))
            if len(errors) == len(calls) and len({str(each) for each in errors.values()}) == 1:
                raise errors[0]
            self.kill()
            self.broken = self._blamed(errors, late)
            raise self.broken

    def _await(self, futures: Sequence[Future[Any]]) -> list[int]:
        """Wait for all calls. When one has failed, the others get a while, after which their processes are killed.

        Returns the ranks that were killed.
        """
        left = set(futures)
        while left:
            done, left = wait(left, return_when=FIRST_COMPLETED)
            if left and any(each.exception() is not None for each in done):
                _, left = wait(left, timeout=GRACE)
                late = [rank for rank, each in enumerate(futures) if each in left]
                for rank in late:
                    Worker.kill([self, *self.others][rank])
                wait(left)
                return late
        return []

    def _blamed(self, errors: Mapping[int, SubjectError], late: Sequence[int]) -> SubjectError:
        """The error of the rank that is the cause. late: ranks that gave no answer after another one had failed."""
        waited = [rank for rank, error in errors.items() if any(sign in str(error) for sign in WAITED)]
        lost = [rank for rank, error in errors.items() if any(sign in str(error) for sign in LOST)]
        own = [rank for rank in errors if rank not in (*late, *waited, *lost)]
        own = [rank for rank in own if isinstance(errors[rank], Crashed)] or own
        if own:
            hint = "; the ranks call other collective operations, or give one tensors of other sizes"
            text = str(errors[own[0]])
            return type(errors[own[0]])(f"rank {own[0]}: {text}{hint if UNLIKE in text else ''}")
        absent = [rank for rank in range(self.ranks.count) if rank not in errors]
        before = [rank for rank in waited if MEETING in str(errors[rank])]
        if 0 < len(before) < len(waited):  # they have passed what the others wait for
            absent, waited = [*absent, *before], [rank for rank in waited if rank not in before]
        here = f"rank {waited[0]} waited {self.waits:g} s" if waited else ""
        if waited and late:
            return TimedOut(f"rank {late[0]} did not answer: {here} for it in a collective operation")
        if waited and absent:
            return Failed(
                f"{here} in a collective operation that rank {absent[0]} did not call: all ranks must call the same ones, in the "
                "same order"
            )
        if waited:
            return Failed(f"{here} in a collective operation: the ranks call different ones, or in another order")
        first = next(iter(errors))
        return type(errors[first])(f"rank {first}: {errors[first]}")

    def _together(self, replies: Sequence[Any]) -> Any:
        """The reply of rank 0, with the mean over the items of the batch of all ranks' losses, and the longest durations."""
        first, shares = replies[0], self.ranks.shares
        slowest = {name: max(getattr(each, name) for each in replies) for name in DURATIONS if hasattr(first, name)}
        first = replace(first, **slowest) if slowest else first

        def mean(values: Sequence[float]) -> float:
            return sum(share * value for share, value in zip(shares, values))

        def by_name(losses: Sequence[Mapping[str, float]]) -> dict[str, float]:
            return {name: mean([each.get(name, math.nan) for each in losses]) for name in losses[0]}

        odd = next((rank for rank, each in enumerate(replies) if isinstance(first, str) and each != first), None)
        if odd is not None:
            raise Failed(f"rank {odd} has other weights than rank 0 after they were loaded")
        if isinstance(first, StepTaken):
            loss, of_step = mean([each.loss for each in replies]), mean([each.step_loss for each in replies])
            return replace(first, loss=loss, step_loss=of_step)
        if isinstance(first, OwnStepsTaken):
            # Each rank may have an optimizer for some of the parameters.
            states = (
                {entry.path: entry for each in some[::-1] for entry in each}
                for some in zip(*(each.state for each in replies))
            )
            updated = {name: optimizer for each in replies[::-1] for name, optimizer in each.optimizers.items()}
            first = replace(first, optimizers=updated, state=tuple(tuple(each.values()) for each in states))
            return replace(first, losses=tuple(map(by_name, zip(*(each.losses for each in replies)))))
        if isinstance(first, tuple) and first and isinstance(first[0], (float, dict)):  # the losses of a free training
            means = [by_name(each) if isinstance(each[0], dict) else mean(each) for each in zip(*replies)]
            finite = [all(map(math.isfinite, each.values() if isinstance(each, dict) else [each])) for each in means]
            return tuple(means[: finite.index(False) + 1] if False in finite else means)
        return first


class DevicesWorker(Worker):
    """A worker whose ranks are devices of its one process.

    ranks: how the training is divided. The other arguments are those of ``Worker``.
    """

    def __init__(self, ranks: Ranks, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.ranks = ranks

    @property
    def in_parts(self) -> bool:
        """Whether each device computes a step of its part of the batch."""
        return not (issubclass(self.adapter, RunsOnRanks) and self.adapter.divided_by_compiler)

    def start(self) -> Started:
        started = super().start()
        self.ask(JoinRanks(0, self.ranks.count, self.ranks.plan, "", 0.0, self.ranks.shares, str(self.folder)))
        return started


def worker_of(ranks: Ranks | None, adapter: type[Runner], *arguments: Any, **more: Any) -> Worker:
    """The worker of a subject, which trains on these ranks; None: in one process. The other arguments are those of ``Worker``."""
    if ranks is None:
        return Worker(adapter, *arguments, **more)
    devices = issubclass(adapter, RunsOnRanks) and adapter.ranks_are_devices
    return (DevicesWorker if devices else RankedWorker)(ranks, adapter, *arguments, **more)
