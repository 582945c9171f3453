"""A pipe by which a worker notices that its parent has ended, even when the parent was killed.

The parent holds the end for writing and never writes. The worker holds the other end, which the system closes with the parent. On
Linux, the kernel then kills the whole process group of the worker, so that a worker that is stopped, or that computes in compiled
code, ends as well, together with the processes that it forked. On other systems a thread waits for the end of the pipe.
"""

from __future__ import annotations

import os
import signal
import threading

VARIABLE = "XVERIFY_LIFELINE"  # environment variable with the number of the worker's file descriptor


def watch() -> None:
    """End this process and its group as soon as the parent has ended. Does nothing in a process that was started without a pipe."""
    number = os.environ.pop(VARIABLE, "")
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
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
