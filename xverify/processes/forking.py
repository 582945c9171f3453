"""Templates of workers, as the parent sees them: an import of a framework is made once for all workers that it is the same for.

A run without timing forks its workers from templates, which end with the run. ``kept`` keeps them for several runs.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from ..framework.runner import Runner
from ..host import kill_group
from ..messages import forking, lifeline
from .command import Command, worker_command
from .ending import MARK, Ending
from .space import owned_folder

ANSWER_SECONDS = 60.0  # in which a template has forked or reaped a worker, which takes some milliseconds
# What every worker is given for itself. The second one, which pytest sets, has the name of the test.
OWN = ("TMPDIR", "PYTEST_CURRENT_TEST")
Key = tuple[tuple[str, ...], frozenset[tuple[str, str]]]  # the arguments of a template and its environment variables


class Forked:
    """A worker that a template has forked, with what is used of a ``subprocess.Popen``.

    folder: of the worker. ended: a descriptor that can be read when it has ended.
    stdin, stdout: the pipes of its requests and replies.
    """

    def __init__(self, template: Template, folder: Path, pid: int, ended: int, requests: int, replies: int) -> None:
        self.template, self.folder, self.pid, self._ended = template, folder, pid, os.fdopen(ended, "rb", buffering=0)
        self.stdin, self.stdout = os.fdopen(requests, "wb"), os.fdopen(replies, "rb")
        self.returncode: int | None = None

    def await_end(self) -> None:
        """Wait until it has ended, without reaping it."""
        poll = select.poll()
        poll.register(self._ended, select.POLLIN)
        poll.poll()

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, reap it, and return its exit status, or minus its signal. timeout: is not used."""
        if self.returncode is None:
            self.await_end()
            self.returncode = self.template.reap(self.pid)
        return self.returncode


class Template:
    """A process that imports a framework, and then forks workers. It has begun to import when this returns.

    command: runs ``messages.forking.MODULE``. folder: an empty folder, its current directory. Raises OSError.
    users: the number of workers that are being forked, or have not been reaped.
    """

    def __init__(self, command: Command, folder: Path) -> None:
        self.folder, self.lock, self.imported, self.users = folder, threading.RLock(), False, 0
        self.forked: list[Forked] = []
        self.channel, theirs = forking.pair()
        read, self.lifeline = os.pipe()
        variables = {MARK: str(folder), forking.CHANNEL: str(theirs.fileno()), lifeline.VARIABLE: str(read)}
        try:
            with theirs, (folder / "worker.log").open("wb") as log:
                self.process = subprocess.Popen(
                    command.arguments,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env={**command.environment, **variables},
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), read),
                )
        except OSError:
            self.channel.close()
            os.close(self.lifeline)
            raise
        finally:
            os.close(read)
        self.ending = Ending(self.process, folder)

    @property
    def ended(self) -> bool:
        """Whether it can fork no more."""
        return self.process.returncode is not None

    def fork(self, folder: Path, log: int, pipe: int, deadline: float, beat: Callable[[], None]) -> Forked | None:
        """Fork a worker; None when the template cannot: its import has failed, or is not over at the deadline.

        folder: of the worker. log, pipe: the descriptors of its log and of its lifeline.
        beat: called about once a second while the template imports.
        """
        with self.lock:
            try:
                self._await_import(deadline, beat)
                forked = self._forked(folder, log, pipe)
            except OSError:  # it has ended, or it is ended here
                self.close()
                return None
            self.forked = [*(each for each in self.forked if each.returncode is None), forked]
            return forked

    def _await_import(self, deadline: float, beat: Callable[[], None]) -> None:
        """Wait until the framework is imported. Raises OSError when it is not."""
        self.channel.settimeout(1.0)
        while not self.imported:
            try:
                forking.receive(self.channel)
                self.imported = True
            except TimeoutError:
                if time.monotonic() > deadline:
                    raise
                beat()
        self.channel.settimeout(ANSWER_SECONDS)

    def _forked(self, folder: Path, log: int, pipe: int) -> Forked:
        variables = {"TMPDIR": str(folder), MARK: str(folder)}
        variables |= {name: os.environ[name] for name in OWN[1:] if name in os.environ}
        requests, replies = os.pipe(), os.pipe()
        theirs, mine = (requests[0], replies[1]), [requests[1], replies[0]]
        try:
            forking.send(self.channel, {"variables": variables, "folder": str(folder)}, (*theirs, log, pipe))
            pid = int(forking.receive(self.channel)[0]["pid"])
            ended = os.pidfd_open(pid)  # it stays until the template is asked to reap it
            return Forked(self, folder, pid, ended, mine.pop(0), mine.pop(0))
        finally:
            for each in (*theirs, *mine):
                os.close(each)

    def reap(self, pid: int) -> int:
        """The exit status of a worker that has ended, or minus its signal; that of SIGKILL when the template is gone."""
        with self.lock:
            self.users -= 1
            with contextlib.suppress(OSError):
                forking.send(self.channel, {"reap": pid})
                return int(forking.receive(self.channel)[0]["status"])
        return -signal.SIGKILL

    def close(self) -> None:
        """End the process, and workers that are left."""
        if not self.ended:
            with contextlib.suppress(OSError):
                self.channel.shutdown(socket.SHUT_RDWR)  # another thread may wait for an answer
            self.ending.reap()
            with self.lock:
                self.channel.close()
                pipe, self.lifeline = self.lifeline, -1
                if pipe >= 0:
                    os.close(pipe)


class Templates:
    """The templates of one run, or of several. space: a folder for theirs."""

    def __init__(self, space: Path) -> None:
        self.space, self.lock, self.made = space, threading.Lock(), 0
        self.of: dict[Key, Template] = {}  # those of workers that are wanted, or were last

    def fork(
        self,
        adapter: type[Runner],
        threads: int,
        device: str,
        folder: Path,
        log: int,
        pipe: int,
        deadline: float,
        beat: Callable[[], None],
    ) -> Forked | None:
        """Fork a worker of this framework that is patient and not timed; None where that cannot be. Arguments: see ``Template``."""
        if not can_fork(adapter, device):
            return None
        try:
            template = self._template(adapter, threads, device)
        except OSError:
            return None
        forked = template.fork(folder, log, pipe, deadline, beat)
        if forked is None:
            template.users -= 1
        return forked

    def _template(self, adapter: type[Runner], threads: int, device: str) -> Template:
        """The template of a framework with the environment variables of now. One with others ends when it has no workers."""
        with self.lock:
            place = self.space / f"template-{self.made}"
            arguments = (adapter.name, str(threads), device)
            command = worker_command(
                adapter, place, threads, device, patient=True, module=forking.MODULE, arguments=arguments
            )
            key = (arguments, frozenset(each for each in command.environment.items() if each[0] not in OWN))
            for other, template in list(self.of.items()):
                if template.ended or (other != key and other[0] == arguments and not template.users):
                    self.of.pop(other).close()
            if key not in self.of:
                place.mkdir()
                self.made += 1
                self.of[key] = Template(command, place)
            self.of[key].users += 1
            return self.of[key]

    def end(self, space: Path) -> None:
        """End the workers in this folder, and templates that are still importing: nothing is imported between two runs."""
        for template in list(self.of.values()):
            if not template.imported:
                template.close()
            for worker in template.forked:
                if worker.folder.is_relative_to(space):
                    kill_group(worker)

    def close(self) -> None:
        """End all of them."""
        for template in self.of.values():
            template.close()


@cache
def has_pidfd() -> bool:
    """Whether this system can tell when a process has ended that is no child of this one."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def can_fork(adapter: type[Runner], device: str) -> bool:
    """Whether workers of this framework can be forked here."""
    return adapter.forks and device == "cpu" and has_pidfd() and not adapter.slow_start()


# .templates, .process: those that ``kept`` keeps in this thread, and the process that they belong to.
_kept = threading.local()


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Keep the templates of the runs of this thread until the context ends."""
    with owned_folder() as space:
        _kept.templates, _kept.process = Templates(space), os.getpid()
        try:
            yield
        finally:
            templates, _kept.templates = _kept.templates, None
            if _kept.process == os.getpid():  # a fork of this process has no part in it
                templates.close()


def are_kept() -> bool:
    """Whether the templates of this thread are kept. They belong to this process, and not to a fork of it."""
    return getattr(_kept, "templates", None) is not None and _kept.process == os.getpid()


@contextlib.contextmanager
def templates(space: Path) -> Iterator[Templates]:
    """The templates for a run: those that are kept, or its own, which end with it. space: the folder of the run."""
    found = _kept.templates if are_kept() else Templates(space)
    try:
        yield found
    finally:
        found.end(space)
        if found.space == space:
            found.close()
