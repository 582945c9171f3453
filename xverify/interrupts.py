"""What Ctrl-C does: at whatever moment it comes, the command ends with one line and with exit code 3."""

from __future__ import annotations

import _thread
import os
import signal
import time

TYPE_CHECKING = False  # typing is not imported: Ctrl-C prints a traceback until a handler is in its place
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

LINE = "xverify: interrupted"
CODE = 3
IMPORTS = "<frozen importlib"  # how the names of the files begin whose code imports modules
PATIENCE, PAUSE = 2.0, 0.05  # seconds that an import is given to end; between two looks at it
_since = [0.0]  # when the signal came that waits for an import; 0 when none does


def end(number: int, frame: FrameType | None) -> NoReturn:
    """End the process at once: nothing has begun, or all has ended. A handler of signals."""
    os.write(2, f"{LINE}\n".encode())
    os._exit(CODE)


def interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt. A handler of signals."""
    if not postponed(number, frame):
        raise KeyboardInterrupt


def postponed(number: int, frame: FrameType | None) -> bool:
    """Whether a module is being imported, some of which drop an exception. Then the signal comes again in a moment."""
    now = time.monotonic()
    _since[0] = _since[0] or now
    while frame is not None and not frame.f_code.co_filename.startswith(IMPORTS):
        frame = frame.f_back
    if frame is None or now - _since[0] > PATIENCE or os.name == "nt":  # the code of a user may never end
        _since[0] = 0.0
        return False
    # Without the locks of ``threading``, which the import may hold.
    _thread.start_new_thread(_again, (_thread.get_ident(), number))
    return True


def _again(thread: int, number: int) -> None:
    time.sleep(PAUSE)
    signal.pthread_kill(thread, number)


# Handlers that a part of a run replaces by its own.
USUAL = (signal.SIG_DFL, signal.default_int_handler, end, interrupt)
