"""The parent's end of a worker: start it, ask it, watch it, and say plainly how it ended."""

from __future__ import annotations

import contextlib
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil

from ..environments import store as environments
from ..errors import Crashed, Failed, NotInstalled, SubjectError, TimedOut, Unsupported
from ..framework.adapter import Framework
from . import codec
from .codec import MessageError, Refusal, Reply, ReplyType, Request
from .messages import Start, Started, Stop

MIB = 1024 * 1024
_STATUS = {error.status: error for error in (NotInstalled, Unsupported, Failed)}
_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

# Called about once a second while a worker works: (seconds so far, the last line it logged).
Beat = Callable[[float, str], None]


class Worker:
    """A live worker process of one framework.

    folder: a directory of the run's own, which is the worker's current directory, so that nothing there hides a module, and
    the place of its temporary files, which so go with it.
    timeout: seconds that any one request may take. pin: the cores that it may use; (): those of this process. patient: its
    threads sleep when they wait for one another, instead of spinning: for what is on no clock, and runs beside others.
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
    ) -> None:
        self.patient = patient
        self.adapter, self.python, self.folder, self.pin = adapter, python, folder, pin
        self.threads, self.device, self.timeout = threads, device, timeout
        self.log = folder / "worker.log"
        self.asked = 0  # the number of the last request
        self.beat: Beat = lambda seconds, line: None
        self.process: subprocess.Popen[bytes] | None = None
        self.version: str | None = None  # of Python, there
        self.import_rss_mib: float | None = None

    # -- life ---------------------------------------------------------------------------------------------------------

    def start(self) -> Started:
        """Start the process and import the framework. Raises SubjectError."""
        for attempt in range(3):
            self._spawn()
            try:
                started = self.ask(Start(self.adapter.name, self.threads, self.device))
            except NotInstalled as error:
                if not _same_interpreter(self.python):
                    raise
                raise NotInstalled(f"{error}; type: {environments.remedy(self.adapter)}") from None
            except SubjectError:
                if attempt < 2 and self.wants_restart():
                    self.close()
                    continue
                raise
            self.import_rss_mib = self.rss_mib()
            environment = {**started.environment, "python": self.version, "interpreter": self.python}
            return replace(started, environment=environment)
        raise AssertionError("unreachable")

    def _spawn(self) -> None:
        environment = {**os.environ, **self.adapter.variables(self.threads, self.device), "TMPDIR": str(self.folder)}
        if self.patient:
            environment["OMP_WAIT_POLICY"] = "PASSIVE"
        if not _same_interpreter(self.python):
            library = self.folder / "lib"
            _lend_package(library)
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(library), os.environ.get("PYTHONPATH")]))
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        try:
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(
                    [self.python, "-m", "xverify.worker"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    cwd=self.folder,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise NotInstalled(f"cannot start {self.python}: {error.strerror}; see --python") from None
        if self.pin:
            psutil.Process(self.process.pid).cpu_affinity(list(self.pin))  # before it starts threads, which inherit it
        threading.Thread(target=_read_lines, args=(self.process.stdout, self._lines), daemon=True).start()
        self._greet()

    def _greet(self) -> None:
        """Wait for the worker's hello, past whatever the interpreter prints as it starts."""
        noise: list[bytes] = []
        deadline = time.monotonic() + self.timeout
        while True:
            line = self._next_line(deadline, "starting")
            version = codec.hello_version(line)
            if version is None:
                noise.append(line)
                if len(noise) > 1000:
                    self.kill()
                    raise Crashed(
                        f"{self.python} prints {noise[0].strip()[:80]!r} instead of starting a worker; see --python"
                    )
                continue
            hello = codec.decode_hello(line)
            if hello is None or version != codec.VERSION:
                self.close()
                raise Crashed(f"{self.python} has an xverify of protocol {version}, this one speaks {codec.VERSION}")
            self.version = hello.python
            return

    def wants_restart(self) -> bool:
        """Whether the process ended as one that only has to be started again."""
        return self.adapter.wants_restart(self._log_text())

    def close(self) -> None:
        """End the process and whatever it started."""
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
        """End the process and whatever it started, at once."""
        if self.process is not None:
            kill_group(self.process)

    # -- talk ---------------------------------------------------------------------------------------------------------

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        """Ask, and wait for the reply. Raises the SubjectError that says how it failed."""
        assert self.process is not None
        assert self.process.stdin is not None
        doing = _doing(request)
        self._check_silent(doing)
        self.asked += 1
        deadline = time.monotonic() + self.timeout
        line = codec.encode_request(self.asked, request)
        try:
            self.process.stdin.write(line)
            self.process.stdin.flush()
        except OSError:
            raise self._death(doing) from None
        reply = self._reply(self._next_line(deadline, doing), doing)
        if isinstance(reply, Refusal):
            raise _STATUS.get(reply.status, Failed)(reply.reason)
        if not isinstance(reply, request.reply_type):
            expected, got = request.reply_type.__name__, type(reply).__name__
            raise self._broken(f"answered with {got!r} instead of {expected!r} to {doing}")
        return cast(ReplyType, reply)

    def _check_silent(self, doing: str) -> None:
        """Raise Crashed when the worker has sent a line that nobody asked for."""
        try:
            line = self._lines.get_nowait()
        except queue.Empty:
            return
        if line is None:
            raise self._death(doing)
        raise self._broken(f"sent {_shown(line)} before {doing}, without being asked")

    def _reply(self, line: bytes, doing: str) -> Reply | Refusal:
        """The reply of a line. Raises Crashed when it is not one, or not that of the last request."""
        try:
            number, reply = codec.decode_reply(line)
        except MessageError as error:
            raise self._broken(f"answered {_shown(line)} to {doing}, which is not the protocol: {error}") from None
        if number != self.asked:
            raise self._broken(f"sent a reply number {number} to request number {self.asked}, {doing}")
        return reply

    def _broken(self, reason: str) -> Crashed:
        """End a worker that does not keep to the protocol: nothing that it says can be relied on."""
        self.kill()
        return Crashed(reason)

    def request(self, op: str, **arguments: Any) -> dict[str, Any]:
        """``ask``, by the earlier names of operations: see _compat."""
        from . import _compat

        return _compat.from_reply(self.ask(_compat.to_request(op, arguments)))

    def _next_line(self, deadline: float, doing: str) -> bytes:
        started = time.monotonic()
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, min(1.0, deadline - time.monotonic())))
            except queue.Empty:
                now = time.monotonic()
                if now >= deadline:
                    self.kill()
                    raise TimedOut(f"{doing} took over {self.timeout:g} s; see --timeout{self._last_words()}") from None
                self.beat(now - started, self._last_line())
                continue
            if line is None:
                raise self._death(doing)
            return line

    def _death(self, doing: str) -> Crashed:
        assert self.process is not None
        try:
            code = self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.kill()
            return Crashed(f"closed its pipe while {doing}{self._last_words()}")
        if code < 0:
            name = signal.Signals(-code).name
            hint = (
                " (killed by hand, or by the system for want of memory: try a smaller --batch)"
                if name == "SIGKILL"
                else ""
            )
            return Crashed(f"killed by {name} while {doing}{hint}{self._last_words()}")
        return Crashed(f"exited with status {code} while {doing}{self._last_words()}")

    # -- look ---------------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def page_faults(self) -> int | None:
        """Pages that the system has found for the process so far without a disk; None where it does not tell."""
        try:
            return int(Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[7])
        except (OSError, ValueError, IndexError):
            return None

    def rss_mib(self) -> float | None:
        """Resident memory of the process now, MiB."""
        assert self.process is not None
        try:
            return psutil.Process(self.process.pid).memory_info().rss / MIB
        except psutil.Error:
            return None

    def peak_rss_mib(self) -> float | None:
        """The highest resident memory so far (VmHWM), MiB; None where the system does not tell."""
        assert self.process is not None
        try:
            status = Path(f"/proc/{self.process.pid}/status").read_text()
        except OSError:
            return None
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        return int(found[1]) / 1024 if found else None

    def _log_text(self) -> str:
        try:
            return _ANSI.sub("", self.log.read_text(errors="replace"))
        except OSError:
            return ""

    def _last_line(self) -> str:
        lines = [line.strip() for line in re.split(r"[\r\n]", self._log_text()[-2000:]) if line.strip()]
        return lines[-1] if lines else ""

    def _last_words(self) -> str:
        line = self._last_line()
        return f"; its last line: {line[:200]}" if line else ""


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
    """What a worker does when it is asked this, for messages."""
    name = type(request).__name__
    return _DOING.get(name, f"the request {name}")


def _shown(line: bytes) -> str:
    return repr(line.strip()[:80])


def _read_lines(pipe: Any, lines: queue.Queue[bytes | None]) -> None:
    with contextlib.suppress(OSError, ValueError):
        for line in pipe:
            lines.put(line)
    lines.put(None)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process that leads a group of its own, and whatever it started, at once."""
    with contextlib.suppress(OSError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _same_interpreter(python: str) -> bool:
    return os.path.abspath(python) == os.path.abspath(sys.executable)


def _lend_package(library: Path) -> None:
    """Make xverify, and nothing that is installed beside it, importable from ``library`` by another interpreter."""
    from .. import __file__ as package_file
    from .. import models, weights

    target = library / "xverify"
    if target.exists():
        return
    shutil.copytree(
        Path(package_file).parent,
        target,
        ignore=shutil.ignore_patterns("__pycache__", "environments", "models", "weights"),
    )
    for package in (models, weights):
        name = package.__name__.rpartition(".")[2]
        shutil.copytree(next(iter(package.__path__)), target / name, ignore=shutil.ignore_patterns("__pycache__"))
