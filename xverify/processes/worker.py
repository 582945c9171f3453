"""A worker process as the parent sees it: starting it, sending requests, waiting for replies, and reporting how it ended."""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import psutil

from ..environments import store as environments
from ..errors import Crashed, Failed, NoModel, NotInstalled, OtherWeights, SubjectError, TimedOut, Unsupported
from ..framework.adapter import Framework
from ..framework.runner import Runner
from ..messages import Block, Start, Started, Stop, codec, limits
from ..messages.codec import MessageError, Refusal, ReplyType, Request
from . import memory, starting
from .command import same_interpreter, worker_command
from .doing import doing_for
from .ending import Ending, signal_name
from .forking import Forked, Templates
from .launcher import Place
from .lines import MOST_NOISE, Lines, shown
from .log import Log

LONG_REQUEST = 32_000  # bytes; a shorter request always fits into the pipe, so that sending it cannot block
LEAST = 20.0  # seconds that a request gets where it begins near or after the end of the whole command
ATTEMPTS = 3  # number of attempts to start a process whose adapter asks for a restart
_STATUS = {error.status: error for error in (NotInstalled, Unsupported, Failed, OtherWeights, NoModel)}

# Called about once a second while a worker works: (seconds so far, last line of its log).
Beat = Callable[[float, str], None]


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
    allocator: the policy of memory allocation (see ``allocator``) of a process that is timed; None: nothing of it is timed.
    memory: the most memory that the process may allocate, GB (see ``limits``); None: no limit.
    templates: what it is forked from when it is patient and nothing else is asked of its process; None: it is started.
    """

    def __init__(
        self,
        adapter: type[Runner],
        python: str,
        folder: Path,
        threads: int,
        device: str,
        timeout: float,
        pin: Sequence[int] = (),
        patient: bool = False,
        beat: Beat = lambda seconds, line: None,
        allocator: str | None = None,
        memory: float | None = None,
        templates: Templates | None = None,
    ) -> None:
        self.adapter, self.python, self.folder, self.pin = adapter, python, folder, pin
        self.threads, self.device, self.timeout = threads, device, timeout
        self.patient, self.beat, self.allocator, self.memory = patient, beat, allocator, memory
        self.templates = templates
        self.place: Place | None = None  # where a launcher starts the process
        self.log = Log(folder / "worker.log")
        self.until: float | None = None  # monotonic time at which the whole command should end; None without a limit
        self.asked = 0  # the number of the last request
        self.asking = threading.Lock()
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self.ending: Ending | None = None
        self._launched: starting.Launched | None = None
        self._overdue: TimedOut | None = None  # the error of a request for which the process was killed
        self.version: str | None = None  # version of Python in the worker
        self.computing: int | None = None  # the number of the process that computes for it, where there is one
        self.import_rss_mib: float | None = None

    @property
    def framework(self) -> type[Framework]:
        """The adapter of a framework; the process does not run a model file."""
        assert issubclass(self.adapter, Framework)
        return self.adapter

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
        self.computing = started.process
        self.import_rss_mib = memory.rss_mib(self.pid)
        environment = {**started.environment, "python": self.version, "interpreter": self.python}
        return replace(started, environment=environment)

    def _spawn(self) -> None:
        command = worker_command(
            self.adapter, self.folder, self.threads, self.device, self.python, self.patient, allocator=self.allocator
        )
        self.asked, self._overdue, self.computing = 0, None, None
        self.log, self._lines = Log(self.log.path), Lines()
        try:
            self.log.path.write_bytes(b"")
            with self.log.path.open("ab") as log:
                self._launched = self._forked(log) or starting.start(command, self.folder, self.memory, log, self.place)
        except OSError as error:
            if error.filename == str(self.log.path):
                raise Crashed(f"its folder {self.folder} cannot be written: {error.strerror}") from None
            raise NotInstalled(f"cannot start {self.python}: {error.strerror}; see --python") from None
        self.process = self._launched.process
        self.ending = Ending(self.process, self.folder)
        memory.end_first(self.process.pid)
        if self.pin:
            # This must happen before the process starts threads, because they inherit the cores.
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(self.process.pid).cpu_affinity(list(self.pin))
        assert self.process.stdout is not None
        try:
            self._lines.follow(self.process.stdout, self.ending)
        except RuntimeError as error:
            self.ending.kill()
            raise Crashed(
                f"its answers cannot be read: {error}; end other processes, or raise the limit of threads"
            ) from None
        self._greet()

    def _forked(self, log: IO[bytes]) -> starting.Launched | None:
        """The process, forked from a template; None where it has to be started."""
        plain = self.patient and self.allocator is None and self.memory is None and not self.pin
        if self.templates is None or self.place is not None or not plain or not same_interpreter(self.python):
            return None
        return starting.fork(
            self.templates, self.adapter, self.threads, self.device, self.folder, self.timeout, log, self.beat
        )

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
                raise self._broken(f"{self.python} prints {shown(noise[0])} instead of starting a worker; see --python")
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
        process, ending = self.process, self.ending
        if process is None or ending is None:
            return
        if not ending.ended.is_set() and process.returncode is None:
            with contextlib.suppress(OSError, ValueError):
                self._pipe.write(codec.encode_request(self.asked + 1, Stop()))
                self._pipe.close()
            ending.ended.wait(2)
        ending.reap()
        # A process that is still there and that holds the pipe would let its closing wait for ever.
        for pipe in (process.stdin, *((process.stdout,) if self._lines.are_read() else ())):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        if self._launched is not None:
            self._launched.drop()

    def kill(self) -> None:
        """Kill the process and all processes that it started."""
        if self.ending is not None:
            self.ending.kill()

    # -- requests -----------------------------------------------------------------------------------------------------

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        """Send a request, and wait for its reply. Raises a SubjectError when the worker fails.

        Several threads may ask: the requests of the others wait meanwhile.
        """
        with self.asking:
            return self._answered(request)

    def _answered(self, request: Request[ReplyType]) -> ReplyType:
        doing = doing_for(request)
        line = codec.encode_request(self.asked + 1, request)
        answered = self._exchange(line, doing, silent=isinstance(request, Block))
        reply = self._reply(answered, request.reply_type, doing)
        if isinstance(reply, Refusal):
            hint = limits.hint(self.memory, reply.reason, kills=self._kills())
            # The process that computes for the worker may end, and the worker goes on to say so.
            ended = self.computing is not None and reply.status == Crashed.status
            raise (Crashed if ended else _STATUS.get(reply.status, Failed))(reply.reason + hint)
        answer: ReplyType = reply
        return answer

    def _exchange(self, line: bytes, doing: str, silent: bool) -> bytes:
        """Send a request, and return the line that answers it. silent: see ``_next_line``."""
        self._check_silent(doing)
        self.asked += 1
        deadline = self._deadline()
        self._send(line, doing)
        return self._next_line(deadline, doing, silent)

    def _deadline(self) -> float:
        """Until when a request that begins now may take."""
        now = time.monotonic()
        latest = now + self.timeout
        return latest if self.until is None else min(latest, max(self.until, now + LEAST))

    def _send(self, line: bytes, doing: str) -> None:
        """Write a request to the pipe. Raises SubjectError when the worker has ended, or does not read a long one in time."""
        late = threading.Event()

        def give_up() -> None:
            late.set()
            self.kill()

        timer = threading.Timer(self.timeout, give_up) if len(line) > LONG_REQUEST else None
        try:
            if timer is not None:
                timer.start()
            self._pipe.write(line)
            self._pipe.flush()
        except (OSError, ValueError):  # ValueError: the pipe was closed with the worker
            raise self._late(doing) if late.is_set() else self._death(doing) from None
        finally:
            if timer is not None:
                timer.cancel()

    def _check_silent(self, doing: str) -> None:
        """Raise Crashed when the worker has sent a line before it got a request."""
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return
        if line is None:
            raise self._death(doing)
        raise self._broken(f"sent {shown(line)} before {doing}, without being asked, which is not the protocol")

    def _reply(self, line: bytes, kind: Any, doing: str) -> Any:
        """The reply in a line. kind: its type. Raises Crashed when the line is no reply, or no reply to the last request."""
        try:
            number, reply = codec.decode_reply(line, kind)
        except MessageError as error:
            if error.number in (None, self.asked):
                says = f"answered {shown(line)} while {doing}, which is not the protocol: {error}"
                raise self._broken(says) from None
            wrong = error.number
        else:
            if number == self.asked:
                return reply
            wrong = number
        raise self._broken(f"sent a reply of number {wrong} to request number {self.asked}, while {doing}")

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
                    raise self._late(doing) from None
                self.log.bound()
                self.beat(now - started, self.log.last_line())
                continue
            if line is None:
                raise self._death(doing)
            return line

    def _late(self, doing: str) -> TimedOut:
        over = self.until is not None and time.monotonic() >= self.until
        why = (
            f"--max-seconds was over while {doing}" if over else f"{doing} took over {self.timeout:g} s; see --timeout"
        )
        self._overdue = TimedOut(f"{why}{self.log.last_words()}")
        return self._overdue

    def _death(self, doing: str) -> Crashed | TimedOut:
        """How the process ended, or that it closed its pipe, as the error to raise."""
        if self._overdue is not None:  # an earlier request was late, and the process was killed for it
            return self._overdue
        _, ending = self._started
        self._lines.end()  # the next request gets the same answer
        if not ending.ended.wait(5):
            self.kill()
            return Crashed(f"closed its pipe while {doing}{self.log.last_words()}")
        code = ending.reap()
        limit = limits.hint(self.memory, "", crashed=True, kills=self._kills())
        if self.place is not None:
            return self.place.crashed(code, doing + limit, self.log)
        if code < 0:
            name = signal_name(-code)
            if name == "SIGKILL" and not limit:
                limit = " (killed by hand, or by the system for want of memory: try a smaller --batch)"
            return Crashed(f"killed by {name} while {doing}{limit}{self.log.last_words()}")
        return Crashed(f"exited with status {code} while {doing}{limit}{self.log.last_words()}")

    def _kills(self) -> int:
        return 0 if self._launched is None else self._launched.kills()

    # -- state --------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """The number of the process that computes, which must have been started."""
        return self.computing or self._started[0].pid

    @property
    def pids(self) -> list[int]:
        """The numbers of all processes that compute."""
        return [self.pid]

    @property
    def folders(self) -> list[Path]:
        """The folder of every process that computes."""
        return [self.folder]

    @property
    def _started(self) -> tuple[subprocess.Popen[bytes] | Forked, Ending]:
        if self.process is None or self.ending is None:
            raise Crashed("its process was not started")
        return self.process, self.ending

    @property
    def _pipe(self) -> IO[bytes]:
        """The pipe for requests."""
        pipe = self._started[0].stdin
        if pipe is None:
            raise Crashed("its process has no pipe")
        return pipe

    def page_faults(self) -> int | None:
        """See memory.page_faults."""
        return memory.total(memory.page_faults, self.pids)

    def rss_mib(self) -> float | None:
        """See memory.rss_mib."""
        return memory.total(memory.rss_mib, self.pids)

    def peak_rss_mib(self) -> float | None:
        """See memory.peak_rss_mib."""
        return memory.total(memory.peak_rss_mib, self.pids)
