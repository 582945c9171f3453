"""Reads a receipt, and tells which of its files are not as they were written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from .. import reading
from ..errors import UsageError
from ..results.file import content
from ..results.file import read as read_result
from ..workload.declaration import LONGEST, declared, shown
from ..workload.digests import file_digest
from ..workload.options import TASKS, RunSettings
from .keeping import own_digest
from .records import INPUTS, RECEIPT, RESULT, VERSION, WEIGHTS, Kept, KeptTask

LARGEST = 2**26  # bytes of receipt.json
Settings = dict[str, Any]  # name of a setting -> value; Any: each has the type of its option


class _Task(msgspec.Struct):
    subjects: tuple[str, ...]


class _Noted(msgspec.Struct):
    """The content of receipt.json, as ``keeping`` writes it."""

    model: str
    settings: Settings
    tasks: dict[str, _Task]
    packages: dict[str, dict[str, str]]
    adapters: dict[str, str]
    left_out: tuple[str, ...]
    files: dict[str, str]
    digest: str


def read(place: Path) -> Kept:
    """The receipt in a folder. What has changed in it is in ``changed``.

    Raises UsageError when the folder is no receipt, was written by another version, or lacks what a run needs.
    """
    values = _decoded(place)
    _check_texts(values, place / RECEIPT)
    version = values.get("receipt_version")
    if version != VERSION:
        made = f" (xverify {values['xverify']})" if isinstance(values.get("xverify"), str) else ""
        raise UsageError(f"{place} is a receipt of version {shown(version)}{made}; this xverify reads {VERSION}")
    try:
        noted = msgspec.convert(values, _Noted)
    except msgspec.ValidationError as error:
        raise UsageError(f"{place / RECEIPT} is no receipt that this xverify can read: {error}") from None
    if not noted.tasks or not set(noted.tasks) <= set(TASKS):
        raise UsageError(
            f"{place / RECEIPT} has the tasks {shown(list(noted.tasks))}: there must be one, or both, of {', '.join(TASKS)}"
        )
    for task in (task for task, each in noted.tasks.items() if not each.subjects):
        raise UsageError(f"{place / RECEIPT} has the task {task} without subjects: there must be one at least")
    changed = list(_changed(place, values, noted.files))
    model = place / noted.model
    if not _inside(model, place) or reading.present(model / "spec.py") is None:
        raise UsageError(f"{place} lacks {noted.model}/spec.py, the model of the run")
    tasks = {
        task: KeptTask(each.subjects, _file(place, task, WEIGHTS), _file(place, task, INPUTS))
        for task, each in noted.tasks.items()
    }
    return Kept(
        path=place,
        model=model,
        settings=_settings(place, noted.settings),
        tasks=tasks,
        packages=noted.packages,
        adapters=noted.adapters,
        left_out=noted.left_out,
        result=read_result(place / RESULT),
        changed=tuple(changed),
    )


def _decoded(place: Path) -> dict[str, object]:
    """The content of receipt.json. Raises UsageError."""
    path = place / RECEIPT
    if not place.is_dir():
        raise UsageError(
            f"{place}: {'a receipt is a folder' if place.exists() else 'no such folder'}; name one that "
            "xverify run MODEL --receipt DIR wrote"
        )
    if reading.present(path) is None:
        raise UsageError(
            f"{place} is no receipt: it has no {RECEIPT}, which a run writes last; name a folder that "
            "xverify run MODEL --receipt DIR wrote to its end"
        )
    values = content(path, LARGEST, "receipt")
    if not isinstance(values, dict) or "receipt_version" not in values:
        raise UsageError(f"{path} is no receipt of xverify: it has no receipt_version")
    return values


def _check_texts(value: object, path: Path, field: str = "") -> None:
    """Raise UsageError for a text, also a name, that no run writes: too long, or with a NUL. field: where the value stands."""
    if isinstance(value, str) and ("\0" in value or len(value) > LONGEST):
        where = f"the field {field} is" if field else "a field is called"
        raise UsageError(
            f"{path} is no receipt that this xverify can read: {where} {shown(value)}; it must have at most {LONGEST} "
            "characters, and no NUL"
        )
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        _check_texts(name, path)
        _check_texts(item, path, f"{field}.{name}".lstrip("."))


def _changed(place: Path, values: Mapping[str, object], files: Mapping[str, str]) -> Iterator[str]:
    """A sentence about each file that is not as it was written."""
    digest = own_digest(values)
    if digest != values.get("digest"):
        yield f"{RECEIPT} has changed: its digest was {_short(str(values.get('digest')))}, is {_short(digest)}"
    for name, written in files.items():
        path = place / name
        if not _inside(path, place):
            raise UsageError(f"{place / RECEIPT} names {name}, which is outside of the receipt")
        try:
            now = file_digest(path)
        except OSError as error:
            yield f"{name} cannot be read: {error.strerror}"
            continue
        if now != written:
            yield f"{name} has changed: its digest was {_short(written)}, is {_short(now)}"
    for name in sorted(_present(place)):
        if name not in files and name != RECEIPT:  # it could hide a file that is imported, or be read by one
            yield f"{name} is new"


def _present(place: Path) -> Iterator[str]:
    """Every file in the folder, and every link to a folder, of whatever name."""
    for here, folders, names in os.walk(place):
        links = [name for name in folders if Path(here, name).is_symlink()]
        yield from (Path(here, name).relative_to(place).as_posix() for name in (*names, *links))


def _short(digest: str) -> str:
    return f"{digest[:19]}…"


def _inside(path: Path, place: Path) -> bool:
    # Not by Path.resolve, which raises for links in a circle.
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(place))


def _file(place: Path, task: str, name: str) -> Path | None:
    return reading.present(place / task / name)


def _settings(place: Path, values: Mapping[str, Any]) -> RunSettings:
    """The settings of the run. Raises UsageError for one that this version does not know."""
    known = {each.name for each in fields(RunSettings)}
    strange = [name for name in values if name not in known]
    if strange:
        raise UsageError(f"{place / RECEIPT} has the setting {strange[0]!r}, which this xverify does not know")
    given: Settings = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    settings = RunSettings(**given)
    try:
        for each in declared(RunSettings):
            each.check_value(getattr(settings, each.name))
    except UsageError as error:
        raise UsageError(f"{place / RECEIPT}: {error}") from None
    return settings
