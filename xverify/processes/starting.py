"""How the process of a worker starts: by itself, or as a fork of one that has imported the framework."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..framework.runner import Runner
from ..messages import cgroup, lifeline, limits
from .command import Command
from .ending import MARK
from .forking import Forked, Templates
from .launcher import Place


@dataclass
class Launched:
    """A process of a worker, and what this process holds of it beside its pipes.

    lifeline: file descriptor of the pipe whose end kills the process; None where the system hands on no descriptors.
    group: control group that bounds its memory; None without a limit.
    """

    process: subprocess.Popen[bytes] | Forked
    lifeline: int | None
    group: cgroup.Group | None = None

    def kills(self) -> int:
        """The number of its processes that the kernel killed because they needed more memory than the limit."""
        return 0 if self.group is None else self.group.kills()

    def drop(self) -> None:
        """Close this process's end of the lifeline, and remove the control group."""
        _drop(self.lifeline, self.group)
        self.lifeline, self.group = None, None


def start(command: Command, folder: Path, memory: float | None, log: IO[bytes], place: Place | None = None) -> Launched:
    """Start a process with its pipes. Where the system can hand it on, one of them is the lifeline. Raises OSError.

    place: where a launcher starts it; no pipe beside its standard ones, and no control group, reaches it there.
    """
    read, own = os.pipe() if os.name == "posix" and place is None else (None, None)
    group = limits.group(memory) if place is None else None
    variables = {**command.environment, **limits.variables(memory, group), MARK: str(folder)}
    arguments: Sequence[str] = command.arguments
    if place is not None:
        variables[lifeline.VARIABLE] = lifeline.INPUT
        arguments = place.arguments(arguments, str(folder), variables)
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=folder,
            env=variables if read is None else {**variables, lifeline.VARIABLE: str(read)},
            start_new_session=True,
            pass_fds=() if read is None else (read,),
        )
    except BaseException:
        _drop(own, group)
        raise
    finally:
        if read is not None:
            os.close(read)
    return Launched(process, own, group)


def fork(
    templates: Templates,
    adapter: type[Runner],
    threads: int,
    device: str,
    folder: Path,
    timeout: float,
    log: IO[bytes],
    beat: Callable[[float, str], None],
) -> Launched | None:
    """Fork a process from a template; None where that cannot be. timeout: seconds that its import may take."""
    read, own = os.pipe()
    begun, forked = time.monotonic(), None
    try:
        forked = templates.fork(
            adapter,
            threads,
            device,
            folder,
            log.fileno(),
            read,
            begun + timeout,
            lambda: beat(time.monotonic() - begun, ""),
        )
    finally:
        os.close(read)
        if forked is None:
            os.close(own)
    return None if forked is None else Launched(forked, own)


def _drop(own: int | None, group: cgroup.Group | None) -> None:
    if own is not None:
        os.close(own)
    if group is not None:
        group.remove()
