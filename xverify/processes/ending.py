"""How a worker ends together with all processes that it started.

A worker leads a process group. The processes in it are killed while the worker's own number still belongs to it: the system gives
the number to another process only after the worker was reaped. A process that left the group still has the environment variable
``MARK``, by which it is found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from ..host import kill_group

if TYPE_CHECKING:
    from .forking import Forked

MARK = "XVERIFY_WORKER"  # environment variable with the folder of the worker, in it and in all processes that it starts
ATTEMPTS = 5  # a process that is being killed may start another one


class Ending:
    """The end of one process, which is reaped only after its group was killed.

    process: a process that was started with the environment variable MARK, in a group of its own. folder: the value of MARK.
    """

    def __init__(self, process: subprocess.Popen[bytes] | Forked, folder: Path) -> None:
        self.process, self.folder = process, folder
        self.ended = threading.Event()  # set when the process has ended; it may not have been reaped
        self.lock = threading.Lock()

    def wait(self) -> None:
        """Wait until the process has ended, without reaping it, and kill the rest of its group."""
        if not isinstance(self.process, subprocess.Popen):
            self.process.await_end()
        elif hasattr(os, "waitid"):
            with contextlib.suppress(ChildProcessError):  # it was reaped
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        else:
            self.process.wait()
        self.kill()
        self.ended.set()

    def kill(self) -> None:
        """Kill the process and its group, unless it was reaped."""
        with self.lock:
            kill_group(self.process)

    def reap(self) -> int:
        """Kill whatever is left of the process and of those that it started. Returns its exit status, or minus its signal."""
        self.kill()
        with self.lock:
            code = self.process.wait()
        kill_marked(self.folder)
        return code


def kill_marked(folder: Path) -> None:
    """Kill all processes that have this folder, or one in it, in the environment variable MARK."""
    for _ in range(ATTEMPTS):
        found = [each for each in psutil.process_iter() if each.pid != os.getpid() and _is_marked(each, folder)]
        if not found:
            return
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()  # psutil makes sure that the number still belongs to the same process
        deadline = time.monotonic() + 1
        # psutil's own function for this would reap children of this process, whose exit status others wait for.
        while any(_is_marked(each, folder) for each in found) and time.monotonic() < deadline:
            time.sleep(0.01)


def _is_marked(process: psutil.Process, folder: Path) -> bool:
    try:
        place = process.environ().get(MARK)
        return place is not None and Path(place).is_relative_to(folder) and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):  # it has ended, or it belongs to another user
        return False


def signal_name(number: int) -> str:
    """The name of a signal: "SIGKILL", or "signal 35" where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
