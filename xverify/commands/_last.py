"""The results of the last commands, in the user's state folder: a command that reads a result and gets no file means the last one.

Only the newest results are kept. The folder and its files must belong to this user alone, and links, pipes and other things in it
are left as they are and not read. A folder that cannot be used is no error of a run.
"""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from pathlib import Path

from .. import host
from ..errors import UsageError, XverifyError
from ..results import file
from ..results.records import Result

MOST = 8  # results that are kept
MOST_BYTES = 2**26  # of all of them together
NAME = re.compile(r"\d{20}-\d+\.json")  # nanoseconds since 1970, and the process that wrote it


def folder() -> Path:
    """Where results are kept."""
    return host.expanded(os.environ.get("XDG_STATE_HOME") or "~/.local/state") / "xverify" / "results"


def keep(result: Result) -> bool:
    """Keep a result, and remove the oldest ones. Returns whether it is kept."""
    place = folder()
    path = place / f"{time.time_ns():020}-{os.getpid()}.json"
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _problem(place):
            return False
        file.write(result, path)
        _forget(place)
        return path.exists()
    except (OSError, XverifyError):
        return False


def newest() -> tuple[Path, Result]:
    """The last result, and where it is. Raises UsageError when none is kept."""
    place = folder()
    wrong = _problem(place) if os.path.lexists(place) else ""
    if wrong:
        raise UsageError(f"no last result is known: the folder {place} {wrong}; name a result file")
    path = next(iter(_kept(place)), None)
    if path is None:
        raise UsageError(
            f"no result is kept in {place} yet: name a result file, or run xverify run or xverify check first"
        )
    return path, file.read(path)


def before(path: Path, result: Result) -> tuple[Path, Result] | None:
    """The newest result of the same model and tasks that is older than this one; None when none is kept."""
    for earlier in _kept(path.parent):
        if earlier.name < path.name:
            with suppress(UsageError):  # a damaged one is none
                found = file.read(earlier)
                if _asked(found) == _asked(result):
                    return earlier, found
    return None


def _asked(result: Result) -> tuple[object, ...]:
    return result.model, result.settings.model, result.tasks


def _forget(place: Path) -> None:
    """Remove the oldest results until the others are within both limits."""
    size = 0
    for index, path in enumerate(_kept(place)):
        with suppress(OSError):
            size += path.lstat().st_size
            if index >= MOST or size > MOST_BYTES:
                path.unlink()


def _kept(place: Path) -> list[Path]:
    """The files of results, the newest first."""
    with suppress(OSError):
        return [place / name for name in sorted(os.listdir(place), reverse=True) if _is_result(place / name)]
    return []


def _is_result(path: Path) -> bool:
    if not NAME.fullmatch(path.name):
        return False
    with suppress(OSError):
        found = path.lstat()
        return stat.S_ISREG(found.st_mode) and _is_own(found)
    return False


def _problem(place: Path) -> str:
    """Why a folder is not used; "" when it is."""
    try:
        found = place.stat()
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    if not stat.S_ISDIR(found.st_mode):
        return "is no folder"
    if not _is_own(found):
        return "belongs to another user"
    return "can be written by other users" if found.st_mode & 0o022 else ""


def _is_own(found: os.stat_result) -> bool:
    """Whether a file belongs to the user of this process, where the system knows users."""
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()
