"""Runs code of a user in this process: a spec or an adapter. However it ends, the command goes on and can say what happened."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from .errors import first_line

LIMIT = 60.0  # seconds; such code declares what there is, and computes nothing


class Stopped(Exception):
    """The code did something that would have ended the program."""


@contextmanager
def guarded(seconds: float | None = None) -> Iterator[None]:
    """Make what would end the program an exception: ``sys.exit``, ``os._exit``, an interrupt that no key caused, an endless loop.

    Ctrl-C interrupts as always. The limit of time needs the main thread and a system with SIGALRM; a loop inside of a function
    that is written in C is not ended. Code that kills the process by a signal is not stopped.
    """
    interrupts: list[int] = []
    with _noted(interrupts), _within(LIMIT if seconds is None else seconds), _no_exit():
        try:
            yield
        except KeyboardInterrupt as error:
            if interrupts:
                raise
            raise Stopped("it raises KeyboardInterrupt").with_traceback(error.__traceback__) from None
        except SystemExit as error:
            says = f"it ends the program: SystemExit: {error.code}"
            raise Stopped(says).with_traceback(error.__traceback__) from None
        except Exception:
            raise
        except BaseException as error:  # GeneratorExit, and classes of the code's own
            raise Stopped(f"it raises {first_line(error)}").with_traceback(error.__traceback__) from None


@contextmanager
def _noted(interrupts: list[int]) -> Iterator[None]:
    """Note every SIGINT, which has its usual effect."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return

    def note(number: int, frame: Any) -> None:  # Any: a frame, which has no public type
        interrupts.append(number)
        usual(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)


@contextmanager
def _within(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in code that takes longer, again and again when the code catches it."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or signal.getitimer(signal.ITIMER_REAL)[0]:
        yield
        return

    def late(number: int, frame: Any) -> NoReturn:  # Any: a frame, which has no public type
        raise TimeoutError(f"it has not ended after {seconds:g} s")

    usual = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual)


@contextmanager
def _no_exit() -> Iterator[None]:
    """Let ``os._exit`` raise SystemExit in this process. A process that the code forks ends as it should."""
    usual, own = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != own:
            usual(status)
        raise SystemExit(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = usual
