"""Every error that xverify raises on purpose.

XverifyError                 one clear line for the user: what, where, both values, the next step
├── UsageError               exit 2: the command line, a file or a folder of the user cannot be used
│   ├── SpecError            the model folder or its spec.py
│   │   └── NoModel          the function of a model file returns something else
│   └── WeightsError         a weight file, or weights that do not fit the model
├── NotWritten                exit 3: a file could not be written
└── SubjectError             exit 3: one subject could not run; it becomes a row, and the other subjects go on
    ├── Refused              its process goes on
    │   ├── NotInstalled     status "not-installed"
    │   ├── Unsupported      status "unsupported"
    │   └── Failed           status "failed": the framework or the model raised an exception
    │       └── OtherWeights status "other-weights", of no row: a verdict says it
    ├── Crashed              status "crashed": the process ended or broke the protocol
    └── TimedOut             status "timeout"
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass

LONGEST = 600  # characters of the text of an error that a message quotes
# numpy and frameworks say it without a number of the system.
NO_SPACE = "no space left on the disk"
FULL = re.compile(r"No space left on device|Disk quota exceeded|\d+ requested and \d+ written")
LINE_BREAK = re.compile(r"\s*[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]\s*")
# What CI services take for a command in a log: "::error" after blanks on GitHub, "##[error]" and "##vso[...]" anywhere in a line.
COMMAND = re.compile(r"(?<!\S):(?=:)|#(?=#\w*\[)")


@dataclass(frozen=True)
class Absent:
    """Says that there is no value. reason: why, in words for the user."""

    reason: str


class XverifyError(Exception):
    """The base of all errors of xverify. Its text is the message for the user; ``exit_code`` is the exit code of the command.

    Each argument is a line of the message, and all but the first are indented. Names in it can hold any characters.
    """

    exit_code = 3

    def __str__(self) -> str:
        return "\n  ".join(shown(str(line)) for line in self.args)


class UsageError(XverifyError):
    """The request of the user cannot be run."""

    exit_code = 2


class SpecError(UsageError):
    """A model folder or its spec.py cannot be used."""


class NoModel(SpecError):
    """The function of a model file returns no model. ``status`` tells a worker's refusal for this reason from the others."""

    status = "no-model"


class WeightsError(UsageError):
    """A weight file cannot be read, or its weights do not fit the model."""


class NotWritten(XverifyError):
    """A file could not be written. ``result``: the records that a result file would have held; None for any other file."""

    result: object = None


class SubjectError(XverifyError):
    """One subject could not run; ``status`` is the status of its row."""

    status = "failed"


class Refused(SubjectError):
    """The subject cannot do what it was asked, and its process can be asked for something else."""


class NotInstalled(Refused):
    """The framework is not installed."""

    status = "not-installed"


class Unsupported(Refused):
    """The framework or mode cannot run this model."""

    status = "unsupported"


class Failed(Refused):
    """The framework or the model raised an exception."""

    status = "failed"


class OtherWeights(Failed):
    """What computed had other weights than those that it is given, so that nothing can be compared: its row is INVALID."""

    status = "other-weights"


class Crashed(SubjectError):
    """The process of the subject ended, or broke the protocol."""

    status = "crashed"


class TimedOut(SubjectError):
    """A step took longer than ``--timeout``."""

    status = "timeout"


def printable(text: str) -> str:
    """A text of our own, in lines, with the control characters of the names in it written out: a terminal obeys some of them."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter == "\n" or letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def shown(text: str) -> str:
    """A text from elsewhere in one line: what a terminal or a CI service would obey, or take for a line of ours, is written out."""
    line = printable(LINE_BREAK.sub(" ", text))
    return COMMAND.sub(lambda found: f"\\x{ord(found[0]):02x}", line) if ":" in line or "#" in line else line


def with_article(noun: str) -> str:
    """A noun with its article, for a message: "an ONNX file"."""
    return f"{'an' if noun[0] in 'AEIOU' else 'a'} {noun}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence about an unknown name: "; did you mean 'X'?", or "." when no known name is similar."""
    import difflib  # imported here, because only error messages need it

    names = list(known)
    # "torhc" is compared with "torch", too, where the known name is "torch:eager". Dashes would make all options similar.
    spellings = {
        spelling.lstrip("-"): known_name
        for known_name in reversed(names)
        for spelling in (known_name.split(":")[0], known_name)
    }
    close = difflib.get_close_matches(name.lstrip("-"), spellings, n=1, cutoff=0.5)
    return f"; did you mean {spellings[close[0]]!r}?" if close else "."


def first_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its text, as a reason in one line."""
    try:
        text = str(error).strip().splitlines()
    except Exception:  # __str__ of an error of a user's own code can fail, too
        text = []
    return f"{type(error).__name__}: {text[0][:LONGEST]}" if text else type(error).__name__


def full_disk(error: BaseException) -> str:
    """A sentence about the folder that is full, or that cannot be written, when this is what the error says; otherwise ""."""
    if isinstance(error, XverifyError):
        return ""
    number = error.errno if isinstance(error, OSError) else None
    name = getattr(error, "filename", None)
    if number == errno.ENOENT and "temporary directory" in str(error):
        return f"{error.strerror}: make one of them writable, or name another with TMPDIR"  # type: ignore[attr-defined]
    if number == errno.EROFS:
        return f"{name}: read-only file system"
    if number not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) and not FULL.search(first_line(error)):
        return ""
    where = f"{os.fsdecode(name)}: " if isinstance(name, (str, bytes)) else ""
    folder = tempfile.gettempdir()
    free = f"the temporary directory {folder} has {shutil.disk_usage(folder).free / 2**20:,.0f} MiB left"
    return f"{NO_SPACE}: {where}{free}; make room, or name another temporary directory with TMPDIR"
