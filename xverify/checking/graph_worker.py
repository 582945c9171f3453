"""The worker that evaluates graphs. It imports torch in the background, while others do what needs no evaluation."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from .. import host
from ..errors import SubjectError
from ..framework import discovery
from ..messages import Start, Started
from ..messages.codec import ReplyType, Request
from ..messages.graph import DescribeGraph
from ..processes.command import interpreter
from ..processes.worker import Worker
from .options import CheckSettings

Taken = ParamSpec("Taken")
Returned = TypeVar("Returned")


class GraphWorker(Worker):
    """A worker that evaluates graphs, which is started in the background: what it is asked first waits for the start."""

    starting: Future[Started] | None = None

    def begin(self) -> None:
        """Start the process, unless it is started already, without waiting until it has imported torch."""
        if self.starting is None:
            self.starting = in_background(self.start)

    def read_early(self, files: Sequence[Path]) -> None:
        """Read the graphs of files when the process has started, before they are asked for."""
        if self.starting is not None and files:
            self.starting = in_background(self._read, self.starting, files)

    def _read(self, starting: Future[Started], files: Sequence[Path]) -> Started:
        started = starting.result()
        with suppress(SubjectError):  # the same request fails again where the graph is needed
            for each in files:
                super().ask(DescribeGraph(str(each.resolve())))
        return started

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        if self.starting is not None and not isinstance(request, Start):
            self.starting.result()
        return super().ask(request)

    def check_started(self) -> None:
        """Raise the SubjectError of a start that has failed."""
        if self.starting is not None and self.starting.done():
            self.starting.result()

    def close(self) -> None:
        if self.starting is not None and not self.starting.done():
            self.kill()  # nothing waits for its import any more
            wait([self.starting])
        super().close()


def in_background(
    function: Callable[Taken, Returned], *arguments: Taken.args, **more: Taken.kwargs
) -> Future[Returned]:
    """Call a function in a thread of its own."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function, *arguments, **more)
    finally:
        pool.shutdown(wait=False)


def graph_worker(settings: CheckSettings, space: Path) -> GraphWorker | None:
    """A worker that evaluates graphs, and is not started; None without torch. space: a folder for the folder of the worker."""
    torch = discovery.load("torch")
    if host.missing(torch):
        return None
    folder = Path(tempfile.mkdtemp(prefix="graphs-", dir=space))
    threads = settings.threads or host.cores()
    return GraphWorker(
        torch, interpreter(torch), folder, threads, "cpu", settings.timeout, patient=True, memory=settings.memory
    )


@contextmanager
def begun(paths: Sequence[Path], settings: CheckSettings, space: Path) -> Iterator[GraphWorker | None]:
    """The worker that evaluates graphs, whose start has begun, where a name says that a file is an ONNX file; None elsewhere."""
    early = any(each.suffix == ".onnx" and each.is_file() for each in paths)
    worker = graph_worker(settings, space) if early else None
    try:
        if worker is not None:
            worker.until = None if settings.max_seconds is None else time.monotonic() + settings.max_seconds
            worker.begin()
        yield worker
    finally:
        if worker is not None:
            worker.close()
