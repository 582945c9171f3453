"""A worker process as the parent sees it: starting it, sending requests, waiting for replies, and reporting how it ended."""

from __future__ import annotations

import contextlib
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, cast

import psutil

from ..environments import store as environments
from ..errors import Crashed, Failed, NotInstalled, SubjectError, TimedOut, Unsupported
from ..framework.adapter import Framework
from ..host import kill_group
from . import codec, memory
from .codec import MessageError, Refusal, Reply, ReplyType, Request
from .command import same_interpreter, worker_command
from .log import Log
from .messages import Block, Start, Started, Stop

MOST_NOISE = 1000  # lines that an interpreter may print before the worker's hello
ATTEMPTS = 3  # number of attempts to start a process whose adapter asks for a restart
_STATUS = {error.status: error for error in (NotInstalled, Unsupported, Failed)}

# Called about once a second while a worker works: (seconds so far, last line of its log).
Beat = Callable[[float, str], None]


def _no_beat(seconds: float, line: str) -> None:
    """Do nothing."""


class Worker:
    """A worker process of one framework. A ``with`` statement starts it, and closes it at the end.

    adapter: the adapter of the framework.
    python: the interpreter of the process.
    folder: an empty folder of the run. It is the worker's current directory, so that no file there hides a module, and it gets its
        temporary files, which are deleted together with the folder.
    threads, device: threads and device of the framework.
    timeout: seconds that one request may take.
    pin: the cores that the process may use; when omitted, the cores of this process.
    patient: whether its threads sleep instead of spinning while they wait for one another. It is for work that is not timed and
        runs beside other work.
    beat: called about once a second while the worker works, but never during a block of timed calls; omitted: nothing is called.
    allocator: the policy of memory allocation of the process (see ``allocator``); that of this process when omitted.
    """

    def __init__(
        self,
        adapter: type[Framework],
        python: str,
        folder: Path,
        threads: int,
        device: str,
        timeout: float,
        pin: Sequence[int] = (),
        patient: bool = False,
        beat: Beat = _no_beat,
        allocator: str | None = None,
    ) -> None:
        self.adapter, self.python, self.folder, self.pin = adapter, python, folder, pin
        self.threads, self.device, self.timeout = threads, device, timeout
        self.patient, self.beat, self.allocator = patient, beat, allocator
        self.log = Log(folder / "worker.log")
        self.asked = 0  # the number of the last request
        self.process: subprocess.Popen[bytes] | None = None
        self.version: str | None = None  # version of Python in the worker
        self.import_rss_mib: float | None = None

    def __enter__(self) -> Worker:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- start, end ---------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """Start the process and import the framework. Raises SubjectError."""
        for left in reversed(range(ATTEMPTS)):
            self._spawn()
            try:
                started = self.ask(Start(self.adapter.name, self.threads, self.device))
                break
            except NotInstalled as error:
                if not same_interpreter(self.python):
                    raise
                raise NotInstalled(f"{error}; type: {environments.remedy(self.adapter)}") from None
            except SubjectError:
                if not left or not self.wants_restart():
                    raise
                self.close()
        self.import_rss_mib = self.rss_mib()
        environment = {**started.environment, "python": self.version, "interpreter": self.python}
        return replace(started, environment=environment)

    def _spawn(self) -> None:
        command = worker_command(
            self.adapter, self.folder, self.threads, self.device, self.python, self.patient, allocator=self.allocator
        )
        self.asked = 0
        self.log = Log(self.log.path)
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        try:
            with self.log.path.open("wb") as log:
                self.process = subprocess.Popen(
                    command.arguments,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    env=command.environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise NotInstalled(f"cannot start {self.python}: {error.strerror}; see --python") from None
        memory.end_first(self.process.pid)
        if self.pin:
            # This must happen before the process starts threads, because they inherit the cores.
            psutil.Process(self.process.pid).cpu_affinity(list(self.pin))
        threading.Thread(target=_read_lines, args=(self.process.stdout, self._lines), daemon=True).start()
        self._greet()

    def _greet(self) -> None:
        """Wait for the worker's hello, and skip lines that the interpreter prints before it."""
        noise: list[bytes] = []
        deadline = time.monotonic() + self.timeout
        while True:
            line = self._next_line(deadline, "starting")
            version = codec.hello_version(line)
            if version is not None:
                break
            noise.append(line)
            if len(noise) > MOST_NOISE:
                raise self._broken(
                    f"{self.python} prints {_shown(noise[0])} instead of starting a worker; see --python"
                )
        hello = codec.decode_hello(line)
        if hello is None or version != codec.VERSION:
            self.close()
            raise Crashed(f"{self.python} has an xverify of protocol {version}, this one speaks {codec.VERSION}")
        self.version = hello.python

    def wants_restart(self) -> bool:
        """Whether the process ended in a way that only needs a new start, according to its adapter."""
        return self.adapter.wants_restart(self.log.text())

    def close(self) -> None:
        """End the process and all processes that it started."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            with contextlib.suppress(OSError, ValueError):
                assert process.stdin is not None
                process.stdin.write(codec.encode_request(self.asked + 1, Stop()))
                process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
        if process.poll() is None:
            kill_group(process)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        if self.process is not None:
            kill_group(self.process)

    # -- requests -----------------------------------------------------------------------------------------------------

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        """Send a request, and wait for its reply. Raises a SubjectError when the worker fails."""
        assert self.process is not None
        assert self.process.stdin is not None
        doing = _doing(request)
        self._check_silent(doing)
        line = codec.encode_request(self.asked + 1, request)
        self.asked += 1
        deadline = time.monotonic() + self.timeout
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except OSError:
            raise self._death(doing) from None
        timed = isinstance(request, Block)
        reply = self._reply(self._next_line(deadline, doing, silent=timed), doing)
        if isinstance(reply, Refusal):
            raise _STATUS.get(reply.status, Failed)(reply.reason)
        if type(reply) is not request.reply_type:
            expected, got = request.reply_type.__name__, type(reply).__name__
            raise self._broken(f"answered {got!r} to {doing}, where {expected!r} is the reply")
        return cast(ReplyType, reply)

    def _check_silent(self, doing: str) -> None:
        """Raise Crashed when the worker has sent a line before it got a request."""
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return
        if line is None:
            raise self._death(doing)
        raise self._broken(f"sent {_shown(line)} before {doing}, without being asked, which is not the protocol")

    def _reply(self, line: bytes, doing: str) -> Reply | Refusal:
        """The reply in a line. Raises Crashed when the line is no reply, or no reply to the last request."""
        try:
            number, reply = codec.decode_reply(line)
        except MessageError as error:
            raise self._broken(f"answered {_shown(line)} to {doing}, which is not the protocol: {error}") from None
        if number != self.asked:
            raise self._broken(f"sent a reply of number {number} to request number {self.asked}, {doing}")
        return reply

    def _broken(self, reason: str) -> Crashed:
        """Kill a worker that breaks the protocol, because its further replies cannot be trusted. Returns the error to raise."""
        self.kill()
        return Crashed(reason)

    def _next_line(self, deadline: float, doing: str, silent: bool = False) -> bytes:
        """The next line of the worker. silent: sleep until it comes, and report no progress.

        While a block is timed, this process must not use the processor.
        """
        started = time.monotonic()
        while True:
            left = max(0.0, deadline - time.monotonic())
            try:
                line = self._lines.get(timeout=left if silent else min(1.0, left))
            except queue.Empty:
                now = time.monotonic()
                if now >= deadline:
                    self.kill()
                    raise TimedOut(
                        f"{doing} took over {self.timeout:g} s; see --timeout{self.log.last_words()}"
                    ) from None
                self.beat(now - started, self.log.last_line())
                continue
            if line is None:
                raise self._death(doing)
            return line

    def _death(self, doing: str) -> Crashed:
        assert self.process is not None
        self._lines.put(None)  # the next request gets the same answer
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            return Crashed(f"closed its pipe while {doing}{self.log.last_words()}")
        if code < 0:
            name = signal.Signals(-code).name
            hint = ""
            if name == "SIGKILL":
                hint = " (killed by hand, or by the system for want of memory: try a smaller --batch)"
            return Crashed(f"killed by {name} while {doing}{hint}{self.log.last_words()}")
        return Crashed(f"exited with status {code} while {doing}{self.log.last_words()}")

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The number of the process, which must have been started."""
        assert self.process is not None
        return self.process.pid

    def page_faults(self) -> int | None:
        """See memory.page_faults."""
        return memory.page_faults(self.pid)

    def rss_mib(self) -> float | None:
        """See memory.rss_mib."""
        return memory.rss_mib(self.pid)

    def peak_rss_mib(self) -> float | None:
        """See memory.peak_rss_mib."""
        return memory.peak_rss_mib(self.pid)


_DOING = {
    "Start": "importing",
    "Build": "building the model",
    "Load": "loading the weights",
    "Export": "exporting ONNX",
    "Evaluate": "computing the reference",
    "Prepare": "its first step",
    "PrepareTraining": "its first training step",
    "Warm": "warming up",
    "Block": "a timed block",
}


def _doing(request: Request[Any]) -> str:
    """What a worker does for this request, as a phrase for messages."""
    name = type(request).__name__
    return _DOING.get(name, f"the request {name}")


def _shown(line: bytes) -> str:
    return repr(line.strip()[:80])


def _read_lines(pipe: IO[bytes], lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(None)
