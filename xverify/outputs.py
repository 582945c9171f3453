"""Decides, before a command starts its work, what its outputs may replace.

An output never takes the place of what the command reads or writes otherwise, also where it is reached through a link. It takes
that of a file that xverify did not write only with --force.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import reading, writing
from .errors import UsageError, XverifyError

ENDS = 2**16  # bytes at each end of a file, by which it is told whether xverify wrote it
MARK = "<!-- written by xverify -->"  # the last line of a Markdown file; it is not shown
SUMMARY = "GITHUB_STEP_SUMMARY"  # an environment variable: the Markdown file that GitHub shows with a workflow run
GENERATOR = "xverify"  # what pages and pictures name as the program that made them


def _json(*names: str) -> str:
    """The beginning of a JSON file whose first record has these names, in this order."""
    return r"\{\s*" + ".{0,4000}?".join(rf'"{name}":' for name in names)


_RECORDS = (
    ("model", "tasks", "verdict"),  # of xverify run, check, convert and replay
    ("schema_version", "xverify", "created", "experiment"),  # of xverify reproduce
    ("model", "subject", "planted"),  # of xverify mutate
    ("framework", "settings", "match"),  # of xverify optimizers
    ("name", "found", "accepted"),  # of xverify selftest
)
# The beginnings of tables: of reports, comparisons and histories.
_HEADS = ("model,created,xverify,", "model,old,new,subject,", "model,task,subject,")
# Kind of a file -> (what it is, what the content of one that xverify wrote has).
KINDS: dict[str, tuple[str, re.Pattern[bytes]]] = {
    kind: (what, re.compile(pattern.encode(), re.DOTALL))
    for kind, what, pattern in (
        ("json", "result file", rf"\A\s*(?:\[\s*)?(?:{'|'.join(_json(*names) for names in _RECORDS)}|\]\s*\Z)"),
        ("html", "page", rf'\A\s*<!doctype html>.*?<meta name="generator" content="{GENERATOR}">'),
        ("markdown", "Markdown report", rf"{MARK}\s*\Z"),
        ("junit", "JUnit report", r'\A<\?xml [^>]*>\s*<testsuites name="xverify"'),
        ("csv", "table", rf"\A(?:{'|'.join(_HEADS)})"),
        ("curve", "picture", rf"\A\x89PNG.*?Software\x00{GENERATOR}|\A<\?xml.*?<dc:title>{GENERATOR}</dc:title>"),
        ("recorder", "recorder", r'\A"""Records the inputs, the outputs and the calls of the layers of a model'),
        ("weights", "file", r"(?!)"),  # they have no mark
    )
}


@dataclass(frozen=True)
class Read:
    """What a command reads.

    label: how the user named it, for example "FILE" or "--weights". path: a file or folder.
    others: returns further files and folders that are read with it, such as the shards of an index. It is called only where a file
        would be replaced that xverify did not write.
    """

    label: str
    path: Path
    others: Callable[[], Iterable[Path]] = tuple


@dataclass(frozen=True)
class Output:
    """A file or folder that a command writes.

    flag: how the user named it. kind: a key of KINDS; "" where another function decides whether what is there is replaced.
    """

    flag: str
    path: Path
    kind: str = ""

    @property
    def shown(self) -> str:
        """The name and the path, for messages."""
        return f"{self.flag} {self.path}"

    @property
    def is_own(self) -> bool:
        """Whether the file that is there is of this kind, and xverify wrote it."""
        if not self.kind:
            return False
        try:
            with self.path.open("rb") as file:
                content = file.read(ENDS)
                if file.seek(0, os.SEEK_END) > ENDS:
                    file.seek(-ENDS, os.SEEK_END)
                    content += b"\n" + file.read(ENDS)
        except OSError:
            return False
        return KINDS[self.kind][1].search(content) is not None


def check(outputs: Sequence[Output], reads: Iterable[Read] = (), force: bool | None = False) -> None:
    """Raise UsageError when an output would destroy something. Devices and pipes destroy nothing.

    reads: what the command reads; they are asked for only where an output is there.
    force: whether files are replaced that xverify did not write; None where the command has no such option.
    """
    outputs = [each for each in outputs if _takes_a_place(each.path)]
    _check_apart(outputs)
    present = [each for each in outputs if _identity(each.path)]
    if not present:
        return
    reads, known = list(reads), {_identity(each.path): each for each in present}
    for read in reads:
        same = known.get(_identity(read.path))
        if same is not None:
            raise UsageError(f"{same.shown} is what this command reads as {read.label}: name another file")
    strange = [each for each in present if not each.is_own]
    for read in reads if strange else ():
        for place in _places(read):
            _check_place(strange, read.label, place)
    for each in strange:
        if each.kind and not force and each.path.stat().st_size:
            remedy = "remove it, or name another file" if force is None else "--force replaces it"
            raise UsageError(f"{each.shown} exists, and is no {KINDS[each.kind][0]} that xverify wrote; {remedy}")


def check_outside(folder: Path, what: str, outputs: Iterable[Output]) -> None:
    """Raise UsageError for an output in a folder to which nothing may be added. what: it is, for the message."""
    for each in outputs:
        if _is_within(each.path, folder):
            raise UsageError(f"{each.shown} is in {what} {folder}, which must stay as it is: name a file elsewhere")


def write(kind: str, text: str, path: str | Path) -> None:
    """Write a report so that it is known as xverify's own when a later one replaces it. kind: of KINDS. Raises NotWritten."""
    writing.write_text(f"{text.rstrip()}\n\n{MARK}\n" if kind == "markdown" else text, path)


def summary() -> Path | None:
    """The file that GitHub shows with a workflow run. Raises UsageError where it is no file, nor an output of this process."""
    path = os.environ.get(SUMMARY)
    if path and os.path.exists(path) and not writing.OWN.fullmatch(path):
        wrong = reading.problem(path)
        if wrong:
            raise UsageError(f"{SUMMARY} is {path}: {wrong}; name a file with it, or unset it")
    return Path(path) if path else None


def _check_apart(outputs: Sequence[Output]) -> None:
    """Raise UsageError for two outputs in one place, and for one in the folder of another."""
    known: dict[object, Output] = {}
    for each in outputs:
        other = known.setdefault(_identity(each.path) or _real(each.path), each)
        if other is not each:
            raise UsageError(f"{other.flag} and {each.flag} name the same file, {each.path}: name another one")
    by_path = {_real(each.path): each for each in outputs}
    for path, each in by_path.items():
        outer = next((by_path[folder] for folder in path.parents if folder in by_path), None)
        if outer is not None:
            raise UsageError(f"{each.shown} is in the folder of {outer.shown}: name a file elsewhere")


def _check_place(outputs: Sequence[Output], label: str, place: Path) -> None:
    """Raise UsageError when an output would destroy a file or folder that is read, or something in it."""
    known = {_identity(each.path): each for each in outputs}
    for each in outputs:
        if _is_within(each.path, place):
            raise UsageError(
                f"{each.shown} is in the folder that this command reads as {label}, and xverify did not write it as such a "
                "file: name another file"
            )
        if _is_within(place, each.path):
            raise UsageError(f"{each.shown} holds what this command reads as {label}: name another place")
    for file in _files(place):
        same = known.get(_identity(file))
        if same is not None:
            raise UsageError(f"{same.shown} is {file}, which this command reads with {label}: name another file")


def _places(read: Read) -> list[Path]:
    """Everything that is read. What cannot be told, because something in it is damaged, is told when it is read."""
    found = [read.path]
    with suppress(XverifyError, OSError, ValueError):
        found += read.others()
    return [each for each in found if _identity(each)]


def _files(place: Path) -> Iterator[Path]:
    """A file, or the files of a folder and of the folders in it, through links; without hidden ones."""
    if not place.is_dir():
        yield place
        return
    seen = set()
    for here, folders, names in os.walk(place, followlinks=True):
        seen.add(_identity(Path(here)))
        folders[:] = [name for name in folders if name[0] != "." and _identity(Path(here, name)) not in seen]
        yield from (Path(here, name) for name in names if name[0] != ".")


def _takes_a_place(path: Path) -> bool:
    """Whether what is written to a path replaces what is there. A device or a pipe would keep both."""
    try:
        return path.is_dir() or writing.is_replaced(path)
    except (OSError, ValueError):  # it is told where the file is written
        return False


def _identity(path: Path) -> tuple[int, int] | None:
    """The device and number of a file, which all links to it share; None without a file."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino


def _real(path: Path) -> Path:
    """Where a path leads to through links. The file need not be there."""
    try:
        return Path(os.path.realpath(path))
    except ValueError:  # a text that is no path
        return path


def _is_within(path: Path, folder: Path) -> bool:
    """Whether a path leads into a folder."""
    return _real(folder) in _real(path).parents
