"""A pipe by which a worker notices that its parent has ended, even when the parent was killed.

The parent holds the end for writing and never writes. The worker holds the other end, which the system closes with the parent. On
Linux, the kernel then kills the whole process group of the worker, so that a worker that is stopped, or that computes in compiled
code, ends as well, together with the processes that it forked. On other systems a thread waits for the end of the pipe. A launcher,
such as ssh, carries the standard input alone. There, a thread waits for the end of that, and a worker that is stopped stays.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time

VARIABLE = "XVERIFY_LIFELINE"  # environment variable with the number of the worker's file descriptor, or with INPUT
INPUT = "input"  # the standard input is the pipe: a launcher carries no other one
LAST = 1.0  # seconds that a worker has, after the end of its input, to end by itself


def watch() -> None:
    """End this process and its group as soon as the parent has ended. Does nothing in a process that was started without a pipe."""
    number = os.environ.pop(VARIABLE, "")
    if number == INPUT:
        with contextlib.suppress(OSError):
            os.setpgid(0, 0)  # a shell that started this process leads its group
        threading.Thread(target=_wait_for_input, args=(os.dup(0),), daemon=True).start()
    if not number.isdigit():
        return
    pipe = int(number)
    os.set_inheritable(pipe, False)
    _let_the_kernel_kill(pipe)
    threading.Thread(target=_wait, args=(pipe,), daemon=True).start()


def _let_the_kernel_kill(pipe: int) -> None:
    """Ask the kernel to send SIGKILL to this process group when the pipe is closed, where it can do that."""
    import fcntl  # absent on Windows, where no pipe is handed on

    if hasattr(fcntl, "F_SETSIG") and os.getpgrp() == os.getpid():
        fcntl.fcntl(pipe, fcntl.F_SETOWN, -os.getpid())  # a negative number is that of a process group
        fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(pipe, fcntl.F_SETFL, fcntl.fcntl(pipe, fcntl.F_GETFL) | os.O_ASYNC)


def _wait(pipe: int) -> None:
    """Wait for the end of the pipe. It may have been closed before the kernel was asked."""
    os.read(pipe, 1)
    _kill()


def _wait_for_input(pipe: int) -> None:
    """Wait until nobody can write to the standard input any more, without reading it. It is a pipe, or a socket of sshd."""
    ended = select.poll()
    ended.register(pipe, getattr(select, "POLLRDHUP", 0))  # the end of a pipe, POLLHUP, is always told
    ended.poll()
    time.sleep(LAST)
    _kill()


def _kill() -> None:
    """Kill this process and its group."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
