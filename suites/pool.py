"""Worker processes that go on from one check to the next, for suites of many small files.

Starting ONNX Runtime and torch takes two seconds, and checking a file of one node takes a hundredth of that. ``lend`` makes
``xverify.check`` take its processes from a pool. Everything else, from the examination of a file to its verdict, is as it is.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xverify.checking.graphs
import xverify.checking.subject
from xverify.errors import Crashed, TimedOut
from xverify.messages import Started
from xverify.processes.log import Log
from xverify.processes.worker import Worker

MOST_USES = 200  # checks that one process serves: graphs that it has read stay in its memory


@dataclass
class Spare:
    """A process that waits for the next check. state: the attributes by which a Worker knows its process."""

    state: dict[str, Any]
    started: Started
    folder: Path
    uses: int


class Pool:
    """Processes by adapter, interpreter, threads and device."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spare: dict[tuple[Any, ...], list[Spare]] = {}
        self.lock = threading.Lock()
        self.started = 0  # processes so far

    def take(self, key: tuple[Any, ...]) -> Spare | None:
        """A process that is alive; None when there is none."""
        with self.lock:
            waiting = self.spare.get(key, [])
            while waiting:
                found = waiting.pop()
                if found.state["process"].poll() is None:
                    return found
        return None

    def give(self, key: tuple[Any, ...], spare: Spare) -> None:
        """Take a process back."""
        with self.lock:
            self.spare.setdefault(key, []).append(spare)

    def new_folder(self) -> Path:
        """A folder for a new process."""
        with self.lock:
            self.started += 1
            folder = self.folder / f"process-{self.started}"
        folder.mkdir()
        return folder


STATE = ("process", "ending", "_launched", "_lines", "log", "asked", "version", "import_rss_mib")


class Pooled(Worker):
    """A worker whose process comes from the pool and goes back there, unless it crashed or took too long."""

    pool: Pool
    spare: Spare | None = None
    sound = False

    @property
    def key(self) -> tuple[Any, ...]:
        return self.adapter.name, self.python, self.threads, self.device

    def start(self) -> Started:
        spare = self.pool.take(self.key) or self._launch()
        self.spare = spare
        for name, value in spare.state.items():
            setattr(self, name, value)
        self.sound = True
        return spare.started

    def _launch(self) -> Spare:
        """Start a process in a folder that outlives this check."""
        own, home = self.folder, self.pool.new_folder()
        self.folder, self.log = home, Log(home / "worker.log")
        try:
            started = super().start()
        finally:
            self.folder = own
        return Spare({name: getattr(self, name) for name in STATE}, started, home, 0)

    def ask(self, request: Any) -> Any:
        try:
            return super().ask(request)
        except (Crashed, TimedOut):
            self.sound = False
            raise

    def close(self) -> None:
        spare, process = self.spare, self.process
        if spare is None or process is None or not self.sound or process.poll() is not None or spare.uses >= MOST_USES:
            super().close()
            if spare is not None:
                shutil.rmtree(spare.folder, ignore_errors=True)
        else:
            state = {name: getattr(self, name) for name in STATE}
            self.pool.give(self.key, Spare(state, spare.started, spare.folder, spare.uses + 1))
        self.spare, self.process, self.ending = None, None, None


@contextlib.contextmanager
def lend() -> Iterator[Pool]:
    """Let checks take their processes from a pool, which ends with the block."""
    users = (xverify.checking.graphs, xverify.checking.subject)
    with tempfile.TemporaryDirectory(prefix="xverify-pool-") as folder:
        pool = Pool(Path(folder))
        lent = type("Lent", (Pooled,), {"pool": pool})
        for module in users:
            module.Worker = lent  # type: ignore[attr-defined]
        try:
            yield pool
        finally:
            for module in users:
                module.Worker = Worker  # type: ignore[attr-defined]
            for waiting in pool.spare.values():
                for spare in waiting:
                    spare.state["process"].kill()
                    spare.state["process"].wait()
