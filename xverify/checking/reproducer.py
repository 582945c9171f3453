"""Writes a reproducer: the piece of a file that a runtime computes wrong, the exact answer, a script, and a bug report."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import NotWritten, SubjectError
from ..processes.worker import Worker
from ..results.records import Result
from ..results.verdicts import Verdict
from . import sequence
from .candidate import Checked, Context, Evaluated, Reproduced
from .judge import CONVERSION, RUNTIME, Judged
from .nodes import captured_nodes
from .pieces import MODES, ROUNDS, Search, Wrong, probing
from .reproducer_files import SCRIPT, place, write_report, write_script

SAYS_WHERE = "a reproducer holds what a runtime computes wrong"


def reproduced(context: Context, graphs: Worker | None, checked: Checked) -> Checked:
    """The file with reproducers of its rows that are DIFFERENT, where they are asked for."""
    wrong = [name for name, each in checked.answers.items() if each.error.verdict == Verdict.DIFFERENT]
    if context.settings.reproducer is None or checked.evaluated is None or not wrong:
        return checked
    found = {name: _reproduced(context, graphs, checked.evaluated, name, checked.answers) for name in wrong}
    return replace(checked, reproducers=found)


def _reproduced(
    context: Context, graphs: Worker | None, evaluated: Evaluated, question: str, answers: Mapping[str, Judged]
) -> Reproduced:
    """The reproducer of one row."""
    opened = evaluated.opened
    if question == CONVERSION:
        return Reproduced(
            None, f"{SAYS_WHERE}, and this row compares two models: its reason names the place of the difference"
        )
    if not opened.is_onnx or opened.form.runtime not in MODES:
        return Reproduced(None, f"only ONNX files have a reproducer, and this is a {opened.form.title}")
    if graphs is None:
        return Reproduced(None, "its graph could not be evaluated in float64, so no exact answer is known")
    try:
        return _searched(context, graphs, evaluated, answers[RUNTIME])
    except SubjectError as error:
        return Reproduced(None, str(error))


def _searched(context: Context, graphs: Worker, evaluated: Evaluated, judged: Judged) -> Reproduced:
    """Search a piece and write it. Raises SubjectError."""
    opened, layers = evaluated.opened, judged.error.layers
    differing = [each.case for each in (layers.layers if layers else ()) if each.verdict == Verdict.DIFFERENT]
    differing += [each.case for each in judged.error.tensors if each.verdict == Verdict.DIFFERENT]
    inputs = sequence.last_step(opened, evaluated.computed.inputs, evaluated.computed.own)
    case = 0 if context.settings.steps is not None else next(iter(differing), 0)
    with captured_nodes(opened, inputs, graphs, case, computed=True) as nodes, probing(context, opened) as probe:
        search = Search(context, opened, graphs, nodes, layers, probe)
        try:
            found = search.find()
            if found is None:
                return Reproduced(None, "no node, and no row of nodes that follow one another, fails by itself")
            folder = Path(tempfile.mkdtemp(prefix="reproducer-", dir=context.space))
            written = search.write(found.cut.places, found.mode, folder, found.outputs, ROUNDS)
        finally:
            search.close()
    if written is None:
        return Reproduced(None, "a piece failed, and did not when it was computed again")
    return _proven(context, evaluated, replace(written, stopped=found.stopped), folder)


def _proven(context: Context, evaluated: Evaluated, found: Wrong, folder: Path) -> Reproduced:
    """The reproducer of a piece, whose script was run as a maintainer of the runtime would."""
    form = evaluated.opened.form
    write_script(folder, form.runtime, found.mode, context.settings.thread_count)
    left = context.clock.left
    limit = context.settings.timeout if left is None else max(1.0, min(context.settings.timeout, left))
    command = [evaluated.opened.worker.python, "reproduce.py"]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Reproduced(None, f"its script could not be run: {error}")
    if done.returncode != 1 or "WRONG" not in done.stdout + done.stderr:
        return Reproduced(None, "a piece failed in the process of xverify, and not in that of its script")
    return Reproduced(folder, write_report(folder, evaluated, found, (done.stdout + done.stderr).strip()))


def with_reproducers(result: Result, checked: Sequence[Checked], target: Path) -> Result:
    """The result with the folders of the reproducers, which are put into ``target``, and a note on each row that is DIFFERENT."""
    rows = {(each.file.label, question): one for each in checked for question, one in each.reproducers.items()}
    written = [(key, one.folder) for key, one in rows.items() if one.folder is not None]
    subjects = [subject for (subject, _), _ in written]
    labels = [" ".join(key) if subjects.count(key[0]) > 1 else key[0] for key, _ in written]
    try:
        folders = place(list(zip(labels, (folder for _, folder in written))), target) if written else []
    except NotWritten as error:
        return replace(result, notes=(*result.notes, f"no reproducer was written: {error}"))
    places = dict(zip((key for key, _ in written), map(str, folders)))
    notes = [] if rows else ["no reproducer was written, because no row is DIFFERENT"]
    for key, one in rows.items():
        folder = places.get(key)
        script = shlex.join(["python", str(Path(folder, SCRIPT))]) if folder else ""
        says = f"{one.says}: {script}" if folder else f"no reproducer was written: {one.says}"
        notes.append(f"{', '.join(key)}: {says}")
    found = tuple(replace(row, reproducer=places.get((row.subject, row.task), "")) for row in result.rows)
    return replace(result, rows=found, notes=(*result.notes, *notes))
