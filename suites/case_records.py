"""Cases: every field of every record with a value of another type, out of range, absent, twice, null, huge, or with a NUL.

Records are a result, which reports, explanations, comparisons, histories, resumed runs and sweeps read, a receipt, which is signed
again so that its digest fits, and the file of a sweep. The fields are those that a record of each kind has.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from cases import Case, Ended
from helpers.sampleresults import RESULT, of_files
from scenes import RESUMED, Scene

from xverify.receipts.keeping import own_digest
from xverify.workload.declaration import declared
from xverify.workload.options import RunSettings

Place = tuple[str | int, ...]  # the keys that lead to a value
TWICE = "\0twice"  # the end of a name that is written as the name without it
LONG = "y" * 50_000
HUGE = 10**400
FREE = ("packages", "environment", "", "files")  # objects whose names are not those of a record


def _name(place: Place) -> str:
    return ".".join(map(str, place))


def places(values: Any, place: Place = ()) -> Iterator[Place]:
    """The places of all fields in JSON values, once for each name: in a list of records, that of the first one that has it."""
    seen = set()
    for found in _places(values, place):
        kind = tuple(key for key in found if not isinstance(key, int))
        if found and kind not in seen:
            seen.add(kind)
            yield found


def _places(values: Any, place: Place) -> Iterator[Place]:
    yield place
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    for key, item in list(items)[: 2 if place and place[-1] in FREE else None]:
        yield from _places(item, (*place, key))


OTHER: dict[type, Any] = {
    str: 7, int: "x", float: "x", bool: "true", list: {"a": 1}, dict: [1], type(None): {"a": [1]},
}  # fmt: skip
OUTSIDE: dict[type, Any] = {str: "no such", int: -1, float: -0.5, bool: 2, list: [], dict: {}, type(None): -1}


def _huge(value: Any) -> Any:
    if isinstance(value, str):
        return LONG
    if isinstance(value, list):
        return value * 2000 or [LONG]
    return {f"name {number}": 1 for number in range(5000)} if isinstance(value, dict) else HUGE


def _set(parent: Any, key: str | int, value: Any) -> None:
    parent[key] = value


def _twice(parent: Any, key: str | int) -> None:
    if isinstance(key, int):
        parent.append(copy.deepcopy(parent[key]))
    else:
        parent[key + TWICE] = OTHER[type(parent[key])]


def _nul(parent: Any, key: str | int) -> None:
    if isinstance(parent[key], str):
        parent[key] = f"a\0{parent[key]}"
    elif isinstance(key, str):
        parent[f"{key}\0"] = parent.pop(key)
    else:
        parent[key] = "\0"


# Kind -> what changes the value of a key in an object or list.
DAMAGES: dict[str, Callable[[Any, str | int], object]] = {
    "another type": lambda parent, key: _set(parent, key, OTHER[type(parent[key])]),
    "out of range": lambda parent, key: _set(parent, key, OUTSIDE[type(parent[key])]),
    "absent": lambda parent, key: parent.pop(key),
    "twice": _twice,
    "null": lambda parent, key: _set(parent, key, None),
    "huge": lambda parent, key: _set(parent, key, _huge(parent[key])),
    "NUL": _nul,
}


def damaged(values: Any, place: Place, damage: str) -> Any:
    """JSON values with one damage at a place."""
    made = copy.deepcopy(values)
    parent = made
    for key in place[:-1]:
        parent = parent[key]
    DAMAGES[damage](parent, place[-1])
    return made


def text(values: Any) -> str:
    """JSON, in which a name can stand twice."""
    return json.dumps(values).replace(json.dumps(TWICE)[1:-1], "")


def _write(here: Path, name: str, values: Any) -> None:
    path = here / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text(values))


def _cases(
    record: str, values: Mapping[str, Any], folder: Path, ways: Mapping[tuple[str, ...], Any],
    write: Callable[[Path, Any], object], known: Collection[Place] = (),
) -> Iterator[Case]:  # fmt: skip
    """Every damage of every field of a record, read in one of these ways, of which each comes up in turn.

    ways: command -> fields of its cases. known: places that another record has, too.
    """
    for index, place in enumerate(each for each in places(values) if each not in known):
        for number, damage in enumerate(DAMAGES):
            if damage == "twice" and isinstance(place[-1], int):
                continue
            words, fields = list(ways.items())[(index + number) % len(ways)]
            made = partial(_prepare, write=write, values=values, place=place, damage=damage)
            yield Case(
                f"records: {damage}", f"{record}, {_name(place)}: {' '.join(words)}", folder, words, made,
                judge=partial(_judged, damage=damage, words=words), **fields,
            )  # fmt: skip


def _prepare(here: Path, write: Callable[[Path, Any], object], values: Any, place: Place, damage: str) -> None:
    write(here, damaged(values, place, damage))


def _judged(ended: Ended, here: Path, damage: str, words: tuple[str, ...]) -> str:
    """What is wrong beside what no command may do: a name that stands twice is not read, and a message names the file."""
    if ended.code == 2 and not any(name in ended.err for name in ("bad.json", "receipt", "s.toml", "resumed.json")):
        return f"it does not name the file: {ended.err!r}"
    if damage != "twice" or ended.code == 2:
        return ""
    told = {"history": "bad.json", "sweep": "twice"}.get(words[0], "never")
    return "" if told in ended.err + ended.out else f"a name stands twice, and it is read: {ended.out[-200:]!r}"


def generate(scenes: list[Scene], folder: Path) -> Iterator[Case]:
    """All cases. folder: of the scenes, which tell nothing here."""
    known: list[Place] = []
    for record, result in (("result", RESULT), ("result of a check", of_files())):
        fail = {"codes": (1, 2)}  # the result is a FAIL, and no damage makes it a better one
        reads: dict[tuple[str, ...], Any] = {
            ("report", "bad.json", "--details"): fail,
            ("explain", "bad.json"): fail,
            ("diff", "r.json", "bad.json", "--anyway"): {},
        }
        history = {("history", "--results", "damaged", "--index", "new.duckdb", "--all"): {"makes": ("new.duckdb",)}}
        values = result.to_dict()
        yield from _cases(record, values, folder, reads, _bad, known)
        yield from _cases(record, values, folder, history, _bad, known)
        known += places(values)
    yield from _of_runs(folder)
    yield from _of_sweeps(folder)


def _bad(here: Path, made: Any) -> None:
    _write(here, "bad.json", made)
    _write(here, "damaged/bad.json", made)


def _of_runs(folder: Path) -> Iterator[Case]:
    """A result that is resumed, the result of a cell, and a receipt."""
    resumed = json.loads((folder / "resumed.json").read_text())
    [cell] = folder.glob("cells/*.json")
    name = str(cell.relative_to(folder))
    ways: dict[tuple[str, ...], Any] = {
        ("run", "port", *RESUMED, "--resume"): {"makes": ("resumed.json",)},
        ("sweep", "s.toml", "--results", "cells", "--dry-run"): {"codes": (0, 2)},
    }
    yield from _cases("result of a run", resumed, folder, ways, partial(_resumed, name=name))
    receipt = json.loads((folder / "receipt" / "receipt.json").read_text())
    yield from _cases("receipt", receipt, folder, {("replay", "receipt", "--no-timing", "--quiet"): {}}, _signed)


def _resumed(here: Path, made: Any, name: str) -> None:
    """Write it as the result to resume, and as that of a cell, whose model is in this copy of the folder."""
    earlier = json.loads((here / "resumed.json").read_text())["settings"]["model"]
    settings = made.get("settings")
    if isinstance(settings, dict) and isinstance(settings.get("model"), str) and settings["model"].endswith("/port"):
        settings["model"] = earlier
    _write(here, "resumed.json", made)
    _write(here, name, made)


def _signed(here: Path, made: Any) -> None:
    """Write a receipt with the digest that fits, unless that is what is damaged."""
    if isinstance(made.get("digest"), str) and made["digest"].startswith("sha256:"):
        noted = json.loads(text({name: value for name, value in made.items() if name != "digest"}))
        made = {**made, "digest": own_digest(noted)}
    _write(here, "receipt/receipt.json", made)


# -- the file of a sweep ----------------------------------------------------------------------------------------------

VALUES = {bool: True, int: 1, float: 1.0, str: "x"}


def _of_sweeps(folder: Path) -> Iterator[Case]:
    """Every setting of a run, in the file of a sweep. Their values are right, as far as their declaration tells."""
    settings: dict[str, Any] = {"subjects": ["numpy"], "no_timing": True}
    for option in declared(RunSettings):
        value = option.choices[0] if option.choices else VALUES[option.kind]
        settings.setdefault(option.name, {"numpy": "python"} if option.repeatable else value)
    values = {"matrix": {"model": ["./port"]}, "settings": settings, "include": [{"model": "./base"}]}
    ways: dict[tuple[str, ...], Any] = {("sweep", "s.toml", "--dry-run"): {"codes": (0, 2)}}
    for case in _cases("file of a sweep", values, folder, ways, _as_toml):
        if "null" not in case.kind:  # TOML has none
            yield case
    for name in (each for each in settings if each != "subjects"):
        for damage in DAMAGES:
            if damage not in ("null", "absent"):
                alone = {"matrix": {"model": ["./port"]}, "settings": {"subjects": ["numpy"], name: settings[name]}}
                made = partial(_prepare, write=_as_toml, values=alone, place=("settings", name), damage=damage)
                yield Case(
                    f"records: {damage}", f"file of a sweep with {name} alone", folder, ("sweep", "s.toml", "--dry-run"),
                    made, (0, 2), judge=partial(_judged, damage=damage, words=("report",)),
                )  # fmt: skip


def _as_toml(here: Path, made: Any) -> None:
    lines = []
    for name, table in made.items():
        if isinstance(table, dict):
            lines += [f"[{_key(name)}]", *(f"{_key(key)} = {_toml(value)}" for key, value in table.items())]
        else:
            lines.insert(0, f"{_key(name)} = {_toml(table)}")
    (here / "s.toml").write_text("\n".join(lines) + "\n")


def _key(name: str) -> str:
    return json.dumps(name.removesuffix(TWICE))


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{_key(key)} = {_toml(item)}' for key, item in value.items())} }}"
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)
