"""``xverify.run``: run one or several tasks, and return the result."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import outputs
from ..errors import NotWritten, UsageError
from ..framework import reads
from ..progress import Listener
from ..receipts.keeping import Keeper
from ..reference.request import resolve
from ..results.file import write, write_so_far
from ..results.records import Result, overall
from ..workload.declaration import build, check, declared, described, parameters
from ..workload.options import RunArguments, RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .budget import Clock, overrun
from .resume import earlier_run
from .run import Run

SETTINGS = declared(RunSettings)
ARGUMENTS = declared(RunArguments)


@dataclass(frozen=True)
class Part:
    """One task of a run. inputs: a file of input cases that takes the place of drawn ones; None draws them."""

    request: Request
    folder: ModelFolder
    inputs: Path | None = None


def run(
    model: str | Path,
    subjects: list[str] | tuple[str, ...] | None = None,
    *,
    json: str | Path | None = None,
    receipt: str | Path | None = None,
    resume: bool = False,
    force: bool = False,
    listener: Listener | None = None,
    **settings: Any,  # the fields of RunSettings, each with its own type
) -> Result:
    """Verify and time a model as ``xverify run`` does, with the same options, and return the records of its result file.

    A subject that cannot run becomes a row with its status and reason.
    Raises UsageError when the request cannot be run, TypeError for an unknown argument, and NotWritten, whose ``result`` is
    what was measured, when the result file or the receipt cannot be written.

    model: a name of the zoo, or a model folder.
    listener: receives the progress of the run (xverify.progress.Listener); when omitted, nothing is shown.
    """
    check(ARGUMENTS, {"subjects": subjects, "json": json, "receipt": receipt, "resume": resume, "force": force})
    asked = build(RunSettings, SETTINGS, settings, "run", ("model", "listener", *(each.name for each in ARGUMENTS)))
    file = Path(json) if json is not None else None
    made = [outputs.Output("--json", file, "" if resume else "json")] if file is not None else []
    made += [outputs.Output("--receipt", Path(receipt))] if receipt is not None else []
    read = (*reads.of_subjects(subjects or ()), *reads.of_run([model], SETTINGS, vars(asked)))
    outputs.check(made, read, force)
    listener = listener or Listener()
    if receipt is None:
        return _run(model, subjects, file, resume, listener, asked)
    with Keeper(Path(receipt), asked) as keeper:
        try:
            result = _run(model, subjects, file, resume, listener, asked, keeper)
        except NotWritten as error:  # the result file alone is missing
            with suppress(NotWritten):
                if isinstance(error.result, Result):
                    keeper.finish(error.result)
            raise
        keeper.finish(result)
        return result


def _run(
    model: str | Path,
    subjects: Sequence[str] | None,
    file: Path | None,
    resume: bool,
    listener: Listener,
    asked: RunSettings,
    keeper: Keeper | None = None,
) -> Result:
    """See ``run``. keeper: writes the receipt."""
    tasks = list(dict.fromkeys(task.strip() for task in asked.task.split(",") if task.strip()))
    if len(tasks) > 1:
        if resume:
            raise UsageError(f"--resume continues a run of one task; this run has the tasks {', '.join(tasks)}")
        parts = [Part(*resolve(model, subjects, asked.for_task(task))) for task in tasks]
        return run_parts(parts, file, listener, asked.max_seconds, keeper)
    if resume and asked.no_timing:
        raise UsageError("--resume adds process runs, and --no-timing makes none: leave one of them out")
    request, folder = resolve(model, subjects, replace(asked, task=tasks[0] if tasks else ""))
    earlier = None
    if resume:
        if file is None:
            raise UsageError("--resume continues the run of a result file: name the file with --json FILE")
        earlier = earlier_run(file, request, folder)
        if earlier is not None and earlier.finished(request):
            raise UsageError(
                f"{file} is complete: there is nothing to resume; a higher --effort would add process runs"
            )
    if keeper is not None:
        keeper.begin(request, folder)
    return Run(request, folder, listener, file, earlier, keeper=keeper).execute()


def run_parts(
    parts: Sequence[Part],
    file: Path | None,
    listener: Listener,
    max_seconds: float | None,
    keeper: Keeper | None = None,
) -> Result:
    """Run one task after another, and return one result with the rows of all.

    They share the seconds of --max-seconds: each gets an equal part of what those before it have left.

    file: the result file. keeper: writes the receipt.
    """
    if keeper is not None:
        for part in parts:
            keeper.begin(part.request, part.folder)
    if len(parts) == 1:
        [part] = parts
        return Run(part.request, part.folder, listener, file, keeper=keeper, inputs=part.inputs).execute()
    whole_clock = Clock(max_seconds)
    results: list[Result] = []
    stopped = False
    for index, part in enumerate(parts):
        clock = Clock(whole_clock.share(len(parts) - index))
        run = Run(part.request, part.folder, listener, None, clock=clock, keeper=keeper, inputs=part.inputs)
        done = _joined(results[-1] if results else None, run.execute(stopped), part)
        whole = replace(done, complete=done.complete and part is parts[-1])
        whole = replace(whole, notes=(*whole.notes, *overrun(max_seconds, whole.timeline)))
        results.append(whole)
        stopped = any(note.startswith("interrupted") for note in done.notes)
        if file is not None:
            if part is parts[-1]:
                write(whole, file)
            else:
                write_so_far(whole, file)
    return results[-1]


def _joined(whole: Result | None, done: Result, part: Part) -> Result:
    """Join the result of the tasks so far, None before the first, with the result of one more task."""
    task, receipts = done.tasks[0], dict(whole.receipts) if whole is not None else {}
    receipts[task] = done.receipt()
    timelines = [each.timeline for each in receipts.values()]
    rows = (*(whole.rows if whole is not None else ()), *done.rows)
    return replace(
        done,
        tasks=tuple(receipts),
        rows=rows,
        verdict=overall(rows, part.request.strict, part.request.reference),
        created=whole.created if whole is not None else done.created,
        timeline={name: sum(each.get(name, 0.0) for each in timelines) for name in timelines[-1]},
        notes=tuple(dict.fromkeys(note for each in receipts.values() for note in each.notes)),
        receipts=receipts,
    )


def _show_options() -> None:
    """Let ``inspect.signature`` and ``help`` show every option of ``run`` with its type and default."""
    signature = inspect.signature(run, eval_str=True)
    own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    run.__signature__ = signature.replace(parameters=[*own, *parameters(SETTINGS)])  # type: ignore[attr-defined]
    indented = described([*ARGUMENTS, *SETTINGS]).replace("\n", "\n    ")
    run.__doc__ = f"{(run.__doc__ or '').rstrip()}\n    {indented}\n    "


_show_options()
