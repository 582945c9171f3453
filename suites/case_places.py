"""Cases: every file that a command reads with something else in its place: a pipe, a device, a folder, nothing at the second look.

What a command reads is what it was seen to read; see scenes.py.
"""

from __future__ import annotations

import fnmatch
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from cases import Case, put
from scenes import Scene

from xverify.weights.sharded import INDEX

REFUSED = ("pipe", "device", "socket", "folder", "link to itself", "dangling link", "unreadable", "absent")
OPENED = {"before it is opened": 1, "before it is opened again": 2, "before it is opened a third time": 3}
STRANGE = os.fsdecode(b"\xff")  # a name with it is no UTF-8
# Of a model folder, or of a folder of shards: nothing in their place is no fault.
OPTIONAL = ("names.toml", "weights.safetensors", f"model{INDEX}")
TABLES = ("*table.json",)  # files of a model folder that its code does not read
IMPORTED = "layers.py"  # a module that code of the user imports: where it is absent, its own error is told


def generate(scenes: list[Scene], folder: Path) -> Iterator[Case]:
    """All cases. folder: of the scenes."""
    for scene in scenes:
        for read in scene.reads:
            yield from _not_files(scene, read, folder)
            yield from _gone(scene, read, folder)
            yield from _named(scene, read, folder)


def _case(scene: Scene, read: Path, kind: str, folder: Path, codes: tuple[int, ...], **more: object) -> Case:
    own = ("*.duckdb", "*.lock")  # an index or a lock is made again
    return Case(
        f"places: {kind}", f"{scene.name}: {read}", folder, scene.with_out(), codes=codes, variables=scene.variables,
        makes=("new*", *scene.makes, *own), **more,  # type: ignore[arg-type]
    )  # fmt: skip


def passed_over(scene: Scene, read: Path, kind: str) -> bool:
    """Whether a command may go on where this is no file."""
    is_optional = read.name in OPTIONAL and kind == "absent" and str(read) not in scene.words
    if (
        kind in ("absent", "unreadable")
        and scene.makes
        and any(fnmatch.fnmatch(str(read), each) for each in scene.makes)
    ):
        return True  # the result of a cell and a lock are made again, or it is told that they cannot be
    return is_optional or any(fnmatch.fnmatch(str(read), pattern) for pattern in (*scene.passes, *TABLES))


def _not_files(scene: Scene, read: Path, folder: Path) -> Iterator[Case]:
    """Something that is no file, or that cannot be read, is refused; an empty file is read, or refused."""
    anything = (0, 1, 2, 3, 4)
    for kind in REFUSED:
        in_row = read.name == IMPORTED or (kind == "absent" and read.parts[0] == "saved")
        codes = anything if passed_over(scene, read, kind) else (2, 3) if in_row else (2,)
        says = (
            (read.parts[0] if read.parts[0] == "saved" else read.name,)
            if codes == (2,) and kind not in ("folder", "absent")
            else ()
        )
        yield _case(scene, read, kind, folder, codes, prepare=partial(_put, read=read, kind=kind), says=says)
    if not scene.long:
        yield _case(scene, read, "empty", folder, anything, prepare=partial(_put, read=read, kind="empty"))


def _put(here: Path, read: Path, kind: str) -> None:
    if kind == "empty":
        (here / read).unlink()
    put(here / read, kind)


def _gone(scene: Scene, read: Path, folder: Path) -> Iterator[Case]:
    """The file is removed when this process is about to open it for the first, second or third time."""
    for kind, number in () if scene.long else OPENED.items():
        within = partial(_removes, read=read, number=number)
        case = _case(scene, read, f"gone {kind}", folder, (0, 1, 2, 3, 4), within=within)
        yield Case(**{**vars(case), "makes": (*case.makes, str(read))})


def _removes(here: Path, read: Path, number: int) -> None:
    """Remove a file at this opening of it in this process. Nothing can take such a hook away, which ends with the process."""
    path, left = os.path.realpath(here / read), [number]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], (str, bytes)) or not left[0]:
            return
        name = os.fsdecode(arguments[0])
        if name.endswith(read.name) and os.path.realpath(name) == path:
            left[0] -= 1
            if not left[0]:
                os.unlink(path)

    sys.addaudithook(hook)


def _named(scene: Scene, read: Path, folder: Path) -> Iterator[Case]:
    """The file has a name that is no UTF-8, or a file with such a name is beside it."""
    words = tuple(word.replace(str(read), str(read.with_name(STRANGE + read.name))) for word in scene.with_out())
    codes = (2,) if words != scene.with_out() else (0, 1, 2, 3, 4)
    made = _case(scene, read, "name not UTF-8", folder, codes, prepare=partial(_renamed, read=read))
    yield Case(**{**vars(made), "words": words})
    if not scene.long and len(read.parts) > 1:
        beside = partial(_beside, read=read)
        yield _case(scene, read, "name not UTF-8 beside it", folder, (scene.code, 2), prepare=beside)


def _renamed(here: Path, read: Path) -> None:
    path = here / read
    path.rename(path.with_name(STRANGE + path.name))


def _beside(here: Path, read: Path) -> None:
    path = here / read
    path.with_name(f"{path.stem}{STRANGE}{path.suffix}").write_bytes(path.read_bytes())
