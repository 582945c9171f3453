"""The cells of a sweep, from a file in TOML or from the command line.

[matrix]                               # every combination of these values is a cell
model = ["resnet50", "./my_port"]      # names of the zoo, or folders, beside the file
task = ["forward", "train"]
batch = [1, 8]

[settings]                             # of every cell: any option of xverify run
subjects = ["torch:eager", "onnxruntime"]
effort = "standard"

[[exclude]]                            # cells that have all of these values are left out
model = "resnet50"
task = "train"

[[include]]                            # further cells, with the settings of all
model = "vit-tiny"
batch = 32
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypedDict, cast

from .. import reading
from ..errors import UsageError, first_line, nearest
from ..framework import ports
from ..workload.declaration import declared
from ..workload.options import RunSettings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST = 2**20  # bytes of the file
MOST_CELLS = 100_000
MODEL, SUBJECTS = "model", "subjects"
OF_RUN = {each.name: each for each in declared(RunSettings)}
OF_CELL = (MODEL, SUBJECTS, *OF_RUN)
LISTS = (SUBJECTS, "pin", "shards", "hosts")  # settings whose single value is a list
# Settings whose value is a table -> the type of what it holds, and how it is described.
TABLES: Mapping[str, tuple[type, str]] = {
    "python": (str, 'texts, e.g. { jittor = "/path/to/python" }'),
    "sizes": (list, "lists of sizes, e.g. { seq = [16, 33] }"),
}
Values = dict[str, Any]  # name of a setting, "model" or "subjects" -> value; Any: each has the type of its option


class Tables(TypedDict, total=False):
    """The tables of a file."""

    matrix: Values
    settings: Values
    include: list[Values]
    exclude: list[Values]


@dataclass(frozen=True)
class Cell:
    """One run.

    model: a name of the zoo, or a folder. subjects: None takes every installed framework that the model has.
    settings: with one task. varied: the names of the settings in which cells of the sweep differ.
    """

    model: str
    subjects: tuple[str, ...] | None
    settings: RunSettings
    varied: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its model, its task and what else tells it from other cells: ``resnet50, forward, batch 8``."""
        return ", ".join([Path(self.model).name, self.settings.task, *self._others()])

    def _others(self) -> Iterator[str]:
        for name in self.varied:
            value = self.subjects if name == SUBJECTS else getattr(self.settings, name)
            if isinstance(value, bool):
                yield name.replace("_", "-") if value else f"no {name.replace('_', '-')}"
            elif value is not None:
                shown = "+".join(map(str, value)) if isinstance(value, tuple) else Path(str(value)).name
                yield f"{name.replace('_', ' ')} {shown}"

    @property
    def arguments(self) -> Values:
        """The arguments of ``xverify.run``."""
        return {"model": self.model, SUBJECTS: self.subjects, **vars(self.settings)}


def read(path: Path, given: Mapping[str, Any] | None = None) -> list[Cell]:
    """The cells of a file. given: settings of the command line, which replace those of [settings].

    Raises UsageError, with the place of the value in the file, when the file cannot be used.
    """
    tables = _tables(path)
    base = path.parent
    axes = _axes(tables.get("matrix", {}), f"{path}, [matrix]", base)
    settings = _values(tables.get("settings", {}), f"{path}, [settings]", base)
    for name in axes:
        if name in settings:
            raise UsageError(f"{path}: {name} is in [matrix] and in [settings]: leave one of them out")
    for name, value in (given or {}).items():
        if name in axes:
            raise UsageError(f"{OF_RUN[name].flag if name in OF_RUN else name}: {path} has {name} in its [matrix]")
        settings[name] = value
    excluded = [
        (index, _axes(table, f"{path}, [[exclude]] {index}", base))
        for index, table in enumerate(_list(tables.get("exclude", []), f"{path}: exclude"), 1)
    ]
    included = [
        _axes(table, f"{path}, [[include]] {index}", base)
        for index, table in enumerate(_list(tables.get("include", []), f"{path}: include"), 1)
    ]
    return _cells(axes, settings, included, excluded, str(path))


def combined(axes: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> list[Cell]:
    """The cells of a command line: every combination of the values of the axes. Raises UsageError."""
    return _cells(dict(axes), dict(settings), [], [], "")


def _cells(
    axes: Mapping[str, Sequence[Any]],
    settings: Values,
    included: Sequence[Mapping[str, Sequence[Any]]],
    excluded: Sequence[tuple[int, Mapping[str, Sequence[Any]]]],
    source: str,
) -> list[Cell]:
    found = [{**settings, **values} for values in _combinations(axes)] if axes else []
    used = set()
    kept = []
    for values in found:
        matched = [index for index, table in excluded if _matches(values, table)]
        used.update(matched)
        if not matched:
            kept.append(values)
    for index, table in excluded:
        if index not in used:
            shown = ", ".join(f"{name} = {list(options)}" for name, options in table.items())
            raise UsageError(f"{source}: [[exclude]] {index} ({shown}) leaves out no cell of [matrix]")
    kept += [{**settings, **values} for table in included for values in _combinations(table)]
    unique = list({repr(sorted(values.items())): values for values in kept}.values())
    for values in unique:
        if MODEL not in values:
            raise UsageError(f"{source}: a cell has no model: write model = [...] in [matrix]")
    if not unique:
        raise UsageError(f"{source}: there are no cells: write model = [...] in [matrix], or [[include]]")
    return _made(unique)


def _made(kept: Sequence[Values]) -> list[Cell]:
    """Cells of these values. A cell is named by the settings that are not the same in all."""
    names = sorted({name for values in kept for name in values} - {MODEL, "task"}, key=OF_CELL.index)
    varied = tuple(name for name in names if len({repr(values.get(name)) for values in kept}) > 1)
    cells = []
    for values in kept:
        settings = RunSettings(**{name: value for name, value in values.items() if name in OF_RUN})
        # Settings of training mean nothing where a cell does not train.
        cells.append(Cell(values[MODEL], values.get(SUBJECTS), settings.for_task(settings.task), varied))
    return cells


def _combinations(axes: Mapping[str, Sequence[Any]]) -> Iterator[Values]:
    count = 1
    for options in axes.values():
        count *= len(options)
    if count > MOST_CELLS:
        raise UsageError(f"the matrix has {count} cells; a sweep has at most {MOST_CELLS}")
    for values in product(*axes.values()):
        yield dict(zip(axes, values))


def _matches(values: Values, table: Mapping[str, Sequence[Any]]) -> bool:
    default = {name: option.default for name, option in OF_RUN.items()}
    return all(values.get(name, default.get(name)) in options for name, options in table.items())


# -- values of the file -----------------------------------------------------------------------------------------------


def _tables(path: Path) -> Tables:
    try:
        with reading.opened(path) as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise UsageError(f"{path} is larger than {LARGEST >> 20} MiB: it is no file of a sweep")
        tables = tomllib.loads(content.decode("utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None
    except (tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise UsageError(f"{path}: {first_line(error)}") from None
    known = Tables.__annotations__
    for name in tables:
        if name not in known:
            raise UsageError(f"{path}: unknown table {name!r}{nearest(name, known)} Known: {', '.join(known)}")
    for name in ("matrix", "settings"):
        if not isinstance(tables.get(name, {}), dict):
            raise UsageError(f"{path}: {name} must be a table: write [{name}]")
    return cast(Tables, tables)


def _list(value: list[Values], place: str) -> list[Values]:
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise UsageError(f"{place} must be a list of tables: write [[{place.rpartition(' ')[2]}]]")
    return value


def _axes(table: Mapping[str, Any], place: str, base: Path) -> dict[str, list[Any]]:
    """Name -> its values. A value that is no list is an axis with this value alone."""
    found: dict[str, list[Any]] = {}
    for name, value in table.items():
        single = not isinstance(value, list) or (name in LISTS and not any(isinstance(each, list) for each in value))
        options = [value] if single else value
        if not options:
            raise UsageError(f"{place}: {name} is empty: name at least one value")
        found[name] = [_value(name, each, place, base) for each in options]
    return found


def _values(table: Mapping[str, Any], place: str, base: Path) -> Values:
    return {name: _value(name, value, place, base) for name, value in table.items()}


def _value(name: str, value: Any, place: str, base: Path) -> Any:
    """A value of the file as ``xverify.run`` takes it. Raises UsageError."""
    name_of = name.replace("-", "_")
    if name_of != name or name not in OF_CELL:
        known = [each for each in OF_CELL if each != name]
        raise UsageError(f"{place}: unknown setting {name!r}{nearest(name_of, known)} Known: {', '.join(known)}")
    if name == MODEL:
        return _model(value, place, base)
    if name in LISTS:
        of = str if name in (SUBJECTS, "hosts") else int
        if not isinstance(value, list) or not value or not all(isinstance(each, of) and each != "" for each in value):
            raise UsageError(f"{place}: {name} is {value!r}: write a list, e.g. {_example(name)}")
        return tuple(ports.beside(each, base) for each in value) if name == SUBJECTS else tuple(value)
    option = OF_RUN[name]
    if option.kind is bool and not isinstance(value, bool):
        raise UsageError(f"{place}: {name} is {value!r}: it must be true or false")
    if option.kind is str and not option.repeatable and not isinstance(value, str):
        raise UsageError(f"{place}: {name} is {value!r}: it must be text in quotation marks")
    kind, example = TABLES.get(name, (object, ""))
    if example and not (isinstance(value, dict) and all(isinstance(each, kind) for each in value.values())):
        raise UsageError(f"{place}: {name} is {value!r}: it must be a table of {example}")
    if name == "task" and "," in value:
        raise UsageError(
            f"{place}: task is {value!r}: a cell has one task; write task = {value.split(',')} in [matrix]"
        )
    if option.path in ("read", "folder", "either") and value not in option.instead:
        value = str(base / value)
    try:
        option.check(value)
    except UsageError as error:
        raise UsageError(f"{place}: {error}") from None
    return float(value) if option.kind is float else value


def _example(name: str) -> str:
    return {SUBJECTS: '["torch:eager", "jittor"]', "hosts": '["node1", "node2"]'}.get(name, "[0, 1]")


def _model(value: Any, place: str, base: Path) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{place}: model is {value!r}: name a model of the zoo, or a folder")
    return str(base / value) if value.startswith(".") or "/" in value else value
