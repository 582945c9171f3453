"""Workers without processes: a session in this process answers, for tests of what is asked and of what is made of the answers.

Messages are encoded and decoded as between processes. A worker of an adapter that ends, hangs or prints is still a process.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from helpers.commandline import OF_THREAD
from xverify.processes.log import Log
from xverify.processes.worker import Worker
from xverify.worker.session import Session

# The adapters of tests/faulty whose fault is in what they compute, and not in how their process behaves; and frameworks with
# which one process can build many models.
COMPUTE = {
    *("numpy", "honest", "swapped", "hidden", "cached", "missing", "widened", "nans", "wrong_weight", "single"),
    *("absent", "lazy", "unwaited", "retraces"),
    *("torch", "onnxruntime"),
}
_ONE = threading.Lock()  # sessions of one process take turns, because they share its modules


class InProcess(Worker):
    """A worker that is a session of this process."""

    def _spawn(self) -> None:
        self.asked, self.log = 0, Log(self.log.path)
        self.log.path.write_bytes(b"")
        self.version = sys.version.split()[0]
        self.session = Session()

    def _exchange(self, line: bytes, doing: str, silent: bool) -> bytes:
        self.asked += 1
        with _ONE, self.log.path.open("a") as OF_THREAD.log:  # the command writes to its streams meanwhile
            try:
                answer = self.session.answer_line(line)
            finally:
                OF_THREAD.log = None
        assert answer is not None
        return answer

    def close(self) -> None:
        self.session = None  # it has the model

    kill = close


@contextmanager
def one_process() -> Iterator[None]:
    """Let workers of the adapters in COMPUTE answer within this process."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_spawn", "_exchange", "close", "kill"):
            patch.setattr(Worker, name, _either(getattr(InProcess, name), getattr(Worker, name)))
        patch.setattr(Worker, "pid", property(_either(lambda worker: os.getpid(), Worker.pid.fget)))
        yield


def _either(here, apart):
    """Call the one method for a worker that answers within this process, and the other for one that is a process."""

    def call(worker, *arguments, **named):
        within = worker.adapter.name in COMPUTE and worker.python == sys.executable and worker.memory is None
        return (here if within else apart)(worker, *arguments, **named)

    return call
