"""Run a published experiment, part by part and repeat by repeat."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ..engine.api import run
from ..errors import UsageError, XverifyError
from ..progress import Listener
from ..report.numbers import duration
from ..workload import datasets
from ..workload.spec import find_model
from .records import Experiment, Part, PartRun, Reproduction


def run_part(
    done: Reproduction, part: Part, directory: str | None, listener: Listener, keep: Callable[[Reproduction], None]
) -> Reproduction:
    """Run all repeats of one part, and return the reproduction with these runs.

    directory: folder of the data set; None: synthetic batches.
    keep: called after every repeat with the reproduction so far.
    Raises UsageError when the settings of the first run are refused. Any other failure is recorded, and the next part can run.
    """
    for repeat in range(done.repeats):
        place = _place(done, part, repeat)
        listener.note(f"{place}: {part.title}, about {duration(part.duration(done.scale))}")
        finished, interrupted = _run_once(done, part, repeat, directory, listener)
        done = replace(done, part_runs=(*done.part_runs, finished))
        if interrupted:
            done = replace(done, stopped=f"interrupted in {place}: the report contains what was measured until then")
        keep(done)
        if interrupted:
            break
    return done


def _place(done: Reproduction, part: Part, repeat: int) -> str:
    place = f"part {done.experiment.place(part) + 1} of {len(done.experiment.parts)}"
    return place + (f", repeat {repeat + 1} of {done.repeats}" if done.repeats > 1 else "")


def _run_once(
    done: Reproduction, part: Part, repeat: int, directory: str | None, listener: Listener
) -> tuple[PartRun, bool]:
    """(the run, whether the user interrupted it)."""
    subjects = [entry.subject for entry in part.entries]
    try:
        result = run(part.model, subjects, listener=listener, **part.settings(done.scale, directory))
    except KeyboardInterrupt:
        return PartRun(part, repeat, failure="interrupted by the user"), True
    except (XverifyError, OSError) as error:
        if isinstance(error, UsageError) and not done.part_runs:
            raise  # nothing has been measured yet that could be lost
        return PartRun(part, repeat, failure=str(error)), False
    return PartRun(part, repeat, result), result.interrupted


def find_data(experiment: Experiment, given: str | None) -> tuple[str | None, str]:
    """(the folder of the data set, or None for synthetic batches; a description of the source of batches).

    given: the folder that the user names; None: the data set that is installed on this machine, if there is one.
    The data set is read once before anything is measured, so that a wrong one is reported at once. Raises UsageError for a wrong
    data set, and for a folder when the experiment uses random data.
    """
    if not experiment.data:
        if given is not None:
            raise UsageError(f"{experiment.name} was published on random data: leave --data {given} out")
        return None, "random, from a seed"
    folder, where = given, ""
    if given is None and experiment.installed and Path(experiment.installed).is_dir():
        folder, where = experiment.installed, "found on this machine: "
    if folder is None:
        return None, f"synthetic, from a seed: no real {experiment.data} was given (--data DIR)"
    kinds = [
        datasets.read(Path(folder), find_model(part.model).spec, part.batch, 0, part.cases).kind
        + f"; {part.cases} batches of it are used in turn"
        for part in experiment.parts
        if part.task == "train"
    ]
    return folder, where + "; ".join(dict.fromkeys(kinds))
