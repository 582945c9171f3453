"""The options of ``xverify sweep``, declared once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import UsageError
from ..workload.declaration import Option, declared, option
from ..workload.options import HOW, OUTPUT, TASKS, WHAT, FilePath, RunSettings, named

WHERE = "where"
AXES = ("task", "batch")  # options that take several values, each of which makes cells of its own


def _several(name: str, read: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    def values(text: str) -> list[Any]:
        found = list(dict.fromkeys(read(each.strip()) for each in text.split(",") if each.strip()))
        if not found:
            raise UsageError(f"--{name} is empty: name at least one value")
        return found

    return values


def _batch(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"--batch is {text!r}: it must be whole numbers, e.g. 1,8") from None


@dataclass(frozen=True, kw_only=True)
class SweepSettings:
    """The settings of a sweep that are not those of its runs."""

    results: FilePath = option("results", "the folder with one result file for each cell", group=OUTPUT, metavar="DIR")
    force: bool = option(False, "also run cells whose results the folder has", group=WHAT)
    dry_run: bool = option(False, "list the cells, and which of them would run", group=WHAT)
    retries: int = option(
        1, "run a cell again up to N times, after all others, when a process of it crashed", group=HOW, metavar="N", least=0
    )  # fmt: skip
    scheduler: str | None = option(
        None, "run on the Dask cluster of this scheduler, e.g. tcp://10.0.0.1:8786", group=WHERE, metavar="ADDRESS",
        unset="this machine",
    )  # fmt: skip
    cluster: str | None = option(
        None, "start a Dask cluster for this sweep: local:2, ssh:HOST,HOST or slurm:8", group=WHERE, metavar="KIND:WHICH",
        unset="none",
    )  # fmt: skip
    share: str | None = option(
        None, "a folder or URL (s3://bucket/xverify) by which files travel between the machines", group=WHERE,
        metavar="DIR|URL", unset="all machines see the model folders and --results",
    )  # fmt: skip


def of_runs() -> tuple[Option, ...]:
    """The options of the runs: those of ``xverify run``, of which --task and --batch take several values."""
    axes = {
        "task": named("task", annotation=Sequence[str], default=None, unset="forward", parse=_several("task", str),
                      help=f"a list of: {', '.join(TASKS)}", many=False, choices=()),
        "batch": named("batch", annotation=Sequence[int], metavar="LIST", parse=_several("batch", _batch),
                       help="a list of items a call, e.g. 1,8"),
    }  # fmt: skip
    return tuple(axes.get(each.name, each) for each in declared(RunSettings))
