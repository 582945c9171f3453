"""Every error that xverify raises on purpose.

XverifyError                 one clear line for the user: what, where, both values, the next step
├── UsageError               exit 2: what the user typed or wrote cannot be run
│   ├── SpecError            the model folder or its spec.py
│   └── WeightsError         a weight file, or weights that do not fit the model
└── SubjectError             exit 3: one subject could not run; becomes a row, never ends the others
    ├── NotInstalled         status "not-installed"
    ├── Unsupported          status "unsupported"
    ├── Failed               status "failed": the framework or the model raised
    ├── Crashed              status "crashed": the process died or broke the protocol
    └── TimedOut             status "timeout"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class XverifyError(Exception):
    exit_code = 3


class UsageError(XverifyError):
    exit_code = 2


class SpecError(UsageError):
    pass


class WeightsError(UsageError):
    pass


class SubjectError(XverifyError):
    status = "failed"


class NotInstalled(SubjectError):
    status = "not-installed"


class Unsupported(SubjectError):
    status = "unsupported"


class Failed(SubjectError):
    status = "failed"


class Crashed(SubjectError):
    status = "crashed"


class TimedOut(SubjectError):
    status = "timeout"


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: "; did you mean 'X'?", or "." when none is close."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else "."


def first_line(error: BaseException) -> str:
    """The error's type and first line, for a one-line reason."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
