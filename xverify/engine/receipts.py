"""Runs a receipt again, and compares the verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from .. import outputs
from ..errors import UsageError
from ..framework import ports, reads
from ..progress import Listener
from ..receipts import comparing, machine
from ..receipts.records import RESULT, Kept, KeptTask
from ..reference.request import resolve
from ..results.file import decoded
from ..results.records import Result
from ..workload.declaration import declared
from ..workload.options import OF_TIMING, RunSettings
from .api import Part, run_parts


def run_again(
    kept: Kept,
    *,
    listener: Listener | None = None,
    anyway: bool = False,
    no_timing: bool = False,
    python: Mapping[str, str] | None = None,
    json: str | Path | None = None,
    force: bool = False,
) -> Result:
    """Run a receipt again, from the files in it. Raises UsageError, and NotWritten as ``xverify.run`` does.

    anyway: also run it when files in it have changed. no_timing: judge only. python: interpreters, in place of those of the run.
    json, force: as of ``xverify.run``.
    """
    if kept.changed and not anyway:
        raise UsageError(
            f"{kept.path} is not as it was written: {'; '.join(kept.changed[:3])}{', …' if len(kept.changed) > 3 else ''}. "
            "--anyway runs it as it is"
        )
    settings = replace(kept.settings, python=python or kept.settings.python)
    if no_timing:
        defaults = {each.name: each.default for each in declared(RunSettings) if each.name in OF_TIMING}
        settings = replace(settings, no_timing=True, **defaults)
    made = [outputs.Output("--json", Path(json), "json")] if json is not None else []
    outputs.check_outside(kept.path, "the receipt", made)
    own = outputs.Read("DIR", kept.path / RESULT)  # which xverify wrote, and which a link from elsewhere may name
    outputs.check(made, [own, *reads.of_run([kept.path], declared(RunSettings), vars(settings))], force)
    parts = [_part(kept, settings.for_task(task), files) for task, files in kept.tasks.items()]
    return run_parts(parts, Path(json) if json is not None else None, listener or Listener(), settings.max_seconds)


def _part(kept: Kept, settings: RunSettings, files: KeptTask) -> Part:
    """One task of the run, with the weights and inputs of the receipt, where the run came so far as to make them."""
    if files.weights is not None:
        settings = replace(settings, weights=str(files.weights))
    if files.inputs is not None:
        settings = replace(settings, data=None)
    subjects = [ports.beside(text, kept.path) for text in files.subjects]
    request, folder = resolve(kept.model, subjects, settings)
    return Part(request, folder, files.inputs)


def compared(kept: Kept, result: Result) -> comparing.Comparison:
    """Compare the new result with that of the receipt, and the machine with that of the receipt."""
    subjects = [text for task in kept.tasks.values() for text in task.subjects]
    interpreters = {python: python for python in kept.packages if python}
    differences = (
        *(f"receipt: {says}" for says in kept.changed),
        *(f"receipt: {name} was too large to be kept, or a link that leads elsewhere" for name in kept.left_out),
        *comparing.packages(kept.packages, machine.packages(interpreters)),
        *comparing.adapters(kept.adapters, machine.adapters(subjects)),
    )
    as_read = decoded(
        result.to_dict(), "the new run"
    )  # as the other one is: without tuples in the environments of frameworks
    return comparing.compare(kept.result, as_read, differences)
