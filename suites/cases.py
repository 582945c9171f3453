"""Runs generated cases, each a command in a copy of a folder, and judges what every command must hold in every case.

A case runs in a fork of this process, which has imported everything, so that it takes some hundredths of a second. Nothing of the
user's may have changed, a message is one line, the exit code is a documented one, there is no traceback, the answer comes in time,
and no temporary folder and no process is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import fnmatch
import hashlib
import importlib
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import socket
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from helpers.commandline import _Stream as Stream  # noqa: E402
from helpers.inprocess import one_process  # noqa: E402

from xverify.commands._main import main as command  # noqa: E402
from xverify.commands._main import parser  # noqa: E402
from xverify.framework import formats  # noqa: E402

SECONDS = 60.0  # within which a command must answer: the machine may be busy, and a wait for a pipe has no end
LEFT_SECONDS = 3.0  # after which a process that a command started must have ended
GIB = 12
SUBREAPER, DROPPED = (
    36,
    24,
)  # of prctl: processes whose parent has ended become children of this one; a right of new programs ends
CAPABILITIES = 0x20080522  # the version of the calls
OF_FILES = (1, 2)  # the rights of root to read and write any file
IMPORTED = (
    *("duckdb", "rich.table", "xverify.checking.api", "xverify.checking.weights", "xverify.conversion.api"),
    *("xverify.engine.api", "xverify.engine.receipts", "xverify.framework.reads"),
    *("xverify.history.index", "xverify.history.query", "xverify.history.page"),
    *("xverify.report.curves", "xverify.report.terminal", "xverify.sweep.run", "xverify.sweep.store", "xverify.sweep.terminal"),
)  # fmt: skip
# A traceback of xverify's own; that of a user's model is shown as it is.
OWN_TRACE = re.compile(r'File "[^"]*xverify/commands/|^Traceback: ', re.MULTILINE)
STRANGE = re.compile(
    r"[^\x20-\x7e\n\u00a0-\u00ac\u00ae-\u1fff\u2010-\u2027\u2030-\u205f\u2070-\ud7ff\ue000-\ufefe\uff00-\ufffd]"
)
HERE = "{here}"  # in a word or a variable of a case: the folder in which the command runs
State = tuple[str, str]  # kind of what is at a path, and the digest of its content


@dataclass(frozen=True)
class Ended:
    """How a command ended. code: its exit code; minus the number of a signal; None when it was given up."""

    code: int | None
    out: str
    err: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Case:
    """One command in a copy of a folder.

    kind: the row of the table. words: the arguments, with paths within the folder, which is the current one.
    prepare: changes the copy first. codes: the exit codes that are right. says: texts that the message of exit code 2 holds.
    makes: patterns of paths that may be new afterwards, or replaced. judge: returns what else is wrong with how it ended, or "".
    within: called in the process of the command before it runs. variables: of the environment.
    """

    kind: str
    name: str
    folder: Path
    words: tuple[str, ...]
    prepare: Callable[[Path], object] | None = None
    codes: tuple[int, ...] = (0, 1, 2, 3, 4)
    says: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    judge: Callable[[Ended, Path], str] | None = None
    within: Callable[[Path], object] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)


def state(folder: Path) -> dict[Path, State]:
    """What is in a folder: path within it -> its kind, and the digest of its content or where a link leads."""
    found = {}
    for here, folders, names in os.walk(folder):
        for name in (*folders, *names):
            path = Path(here, name)
            mode = path.lstat().st_mode
            kind = stat.filemode(mode)
            content = os.readlink(path) if stat.S_ISLNK(mode) else _digest(path) if stat.S_ISREG(mode) else ""
            found[path.relative_to(folder)] = (kind, content)
    return found


def _digest(path: Path) -> str:
    mode = path.stat().st_mode
    if not mode & 0o400:  # of the kind "unreadable", which the right of root reads
        path.chmod(mode | 0o400)
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    finally:
        path.chmod(mode)


def called(case: Case, space: Path, seconds: float) -> Ended:
    """Run the command of a case in a fork. space: with the folders "here", in which it runs, and "temporary"."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        begun = time.monotonic()
        child = os.fork()
        if not child:
            _run(case, space, out.fileno(), err.fileno())
        code = _waited(child, begun + seconds)
        spent = time.monotonic() - begun
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="surrogateescape"))
    return Ended(code, *texts, spent)


def _run(case: Case, space: Path, out: int, err: int) -> None:
    """Become the command of a case, and end with its exit code."""
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(space / "here")
        os.environ.update(
            {
                "TMPDIR": str(space / "temporary"),
                "XDG_STATE_HOME": str(space / "state"),  # in which the last result is kept
                "COLUMNS": "200",
                "PYTHONSAFEPATH": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
            }
        )
        os.environ.update(
            {
                "XVERIFY_FRAMEWORKS": str(TESTS / "faulty"),
                **{name: text.replace(HERE, os.getcwd()) for name, text in case.variables.items()},
            }
        )
        tempfile.tempdir = None
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        for name, number in (("stdout", 1), ("stderr", 2)):  # without what a session of this process writes as a worker
            stream = os.fdopen(number, "wb", buffering=0, closefd=False)
            setattr(sys, name, Stream(stream, encoding="utf-8", errors="surrogateescape", write_through=True))  # type: ignore[arg-type]
        with one_process():
            if case.within is not None:
                case.within(space / "here")
            code = command([word.replace(HERE, os.getcwd()) for word in case.words])
    except SystemExit as ended:  # the help, or a wrong argument
        code = int(ended.code or 0)
    except BaseException as error:
        print(f"Traceback: {type(error).__name__}: {error}", file=sys.stderr)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _waited(child: int, deadline: float) -> int | None:
    """The exit code of a process; None when it has not ended in time, and was killed."""
    pause = 0.002
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(pause)
        pause = min(pause * 1.2, 0.05)


def _left() -> int:
    """The number of processes that a command has left. They are killed."""
    deadline = time.monotonic() + LEFT_SECONDS
    while True:
        try:
            found, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if not found and time.monotonic() > deadline:
            break
        time.sleep(0 if found else 0.02)
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        left = [int(number) for number in file.read().split()]
    for number in left:
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
    return len(left)


def copied(folder: Path, space: Path) -> Path:
    """A copy of a folder to run a command in. Paths in its results lead into the copy."""
    (space / "temporary").mkdir()
    here = Path(shutil.copytree(folder, space / "here", symlinks=True))
    for path in here.glob("*.json"):
        path.write_text(path.read_text().replace(str(folder), str(here)))
    return here


def fault(case: Case, space: Path) -> tuple[str, float]:
    """What is wrong with how the command of a case ends; "" when it is right. Returns its seconds, too."""
    here = copied(case.folder, space)
    if case.prepare is not None:
        case.prepare(here)
    before = state(here)
    ended = called(case, space, SECONDS)
    left = _left()
    wrong = _answer(case, ended) or _changes(case, before, state(here))
    if not wrong and left:
        wrong = f"it leaves {left} processes"
    kept = [name for name in os.listdir(space / "temporary") if not name.startswith("torchinductor_")]  # torch's own
    if not wrong and kept:
        wrong = f"it leaves {kept}"
    return wrong or (case.judge(ended, here) if case.judge is not None else ""), ended.seconds


def _answer(case: Case, ended: Ended) -> str:
    """What is wrong with the exit code and the message."""
    both, last = ended.out + ended.err, ended.err[-300:]
    if ended.code is None:
        return f"no answer within {SECONDS:g} s"
    if ended.code < 0 or OWN_TRACE.search(both) or re.search(r"^xverify[\w ]*: unexpected", ended.err, re.MULTILINE):
        return f"it ends with {ended.code}: {last!r}"
    if ended.code not in case.codes:
        return f"exit code {ended.code}, expected {case.codes}: {(last or ended.out[-300:])!r}"
    first, *more = ended.err.splitlines() or [""]
    listed = case.words[0] == "sweep" and all(line.startswith("  ") for line in more)  # a line for each cell
    if ended.code == 2 and ((more and not listed) or not first.startswith("xverify") or ended.out):
        return f"its message is not one line: {both[-500:]!r}"
    if ended.code == 2:
        missing = [text for text in case.says if text not in ended.err]
        if missing:
            return f"it does not say {missing[0]!r}: {last!r}"
    strange = STRANGE.search(both)
    return f"it prints the character {strange[0]!r}" if strange else ""


def _changes(case: Case, before: Mapping[Path, State], after: Mapping[Path, State]) -> str:
    """What has changed in the folder and may not."""
    changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    for path in sorted(changed):
        if not any(fnmatch.fnmatch(str(path), pattern) for pattern in case.makes):
            return f"{path} {'is new' if path not in before else 'is gone' if path not in after else 'has changed'}"
    return ""


# -- many cases -------------------------------------------------------------------------------------------------------

_CASES: Sequence[Case] = ()  # those of the run, which the processes of a pool inherit


def prepare() -> None:
    """Import what commands import, apart from frameworks, because each fork would import it again."""
    parser()
    formats.load_all()
    for name in IMPORTED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def _begin() -> None:
    """In a new process of the pool: become the parent of what commands leave behind, and lose the rights of root to files."""
    system = ctypes.CDLL(None)
    system.prctl(SUBREAPER, 1, 0, 0, 0)
    header, rights = (ctypes.c_uint32 * 2)(CAPABILITIES, 0), (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and system.capget(header, rights) == 0:
        for right in OF_FILES:
            system.prctl(DROPPED, right, 0, 0, 0)
            for set_of in range(3):
                rights[set_of] &= ~(1 << right)
        system.capset(header, rights)
    limit = GIB * 2**30
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _judged(number: int) -> tuple[int, str, float]:
    case = _CASES[number]
    with tempfile.TemporaryDirectory(prefix="cases-") as name:
        try:
            return number, *fault(case, Path(name))
        except Exception as error:
            return number, f"the case cannot be made: {type(error).__name__}: {error}", 0.0


def run(cases: Sequence[Case], jobs: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """Run the cases. Returns the counts of each kind, and what was wrong."""
    global _CASES
    _CASES = cases
    prepare()
    counts = {case.kind: Counter[str]() for case in cases}
    wrong, slowest = [], (0.0, "")
    with multiprocessing.get_context("fork").Pool(jobs, _begin) as pool:
        for number, why, seconds in pool.imap_unordered(_judged, range(len(cases))):
            case = cases[number]
            counts[case.kind].update(("tried", "WRONG" if why else "right"))
            slowest = max(slowest, (seconds, case.name))
            if why:
                wrong.append(f"{case.kind}: {case.name}: {why}")
                print(f"WRONG {wrong[-1]}".encode(errors="backslashreplace").decode(), flush=True)
    if cases:
        print(f"slowest: {slowest[0]:.1f} s, {slowest[1]}".encode(errors="backslashreplace").decode(), flush=True)
    return counts, wrong


def sample(cases: Sequence[Case], most: int | None, seed: str = "0") -> list[Case]:
    """So many of the cases, taken evenly. seed: another one takes others."""
    if most is None or most >= len(cases):
        return list(cases)
    first = random.Random(seed).randrange(len(cases)) if seed != "0" else 0
    return [cases[(first + index * len(cases) // most) % len(cases)] for index in range(most)]


def put(path: Path, kind: str) -> None:
    """Put something that is no file, or no longer one, in the place of a file."""
    os.chmod(path.parent, 0o755)
    content = path.read_bytes() if path.is_file() else b""
    if os.path.lexists(path):
        path.unlink()
    made: dict[str, Callable[[], Any]] = {
        "pipe": lambda: os.mkfifo(path),
        "device": lambda: path.symlink_to("/dev/zero"),
        "socket": lambda: _socket(path),
        "folder": path.mkdir,
        "link to itself": lambda: path.symlink_to(path.name),
        "dangling link": lambda: path.symlink_to("gone"),
        "unreadable": lambda: (path.write_bytes(content), path.chmod(0)),
        "empty": path.touch,
        "absent": lambda: None,
    }
    made[kind]()


def _socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
