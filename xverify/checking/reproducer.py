"""Writes a reproducer: the piece of a file that a runtime computes wrong, the exact answer, a script, and a bug report."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import Failed, NotWritten, SubjectError, with_article
from ..messages.graph import GraphSide
from ..messages.pieces import CutPair
from ..processes.worker import Worker
from ..results.records import Result
from ..results.verdicts import Verdict
from . import sequence
from .candidate import Checked, Context, Evaluated, Reproduced, Target
from .computing import INPUTS
from .judge import CONVERSION, Judged
from .nodes import captured_nodes
from .pieces import MODES, ROUNDS, Search, probing
from .reproducer_files import ONE, SCRIPT, TWO, place, write_pair_report, write_report, write_script


def reproduced(context: Context, graphs: Worker | None, checked: Checked, target: Target | None) -> Checked:
    """The file with reproducers of its rows that are DIFFERENT, where they are asked for. target: the reference."""
    evaluated = checked.evaluated
    wrong = [name for name, each in checked.answers.items() if each.error.verdict == Verdict.DIFFERENT]
    if context.settings.reproducer is None or evaluated is None or not wrong:
        return checked
    if not evaluated.opened.is_onnx or evaluated.opened.form.runtime not in MODES:
        no = Reproduced(
            None, f"only ONNX files have a reproducer, and this is {with_article(evaluated.opened.form.title)}"
        )
        return replace(checked, reproducers=dict.fromkeys(wrong, no))
    found = {}
    for name in wrong:
        try:
            if graphs is None:
                raise Failed("its graph could not be evaluated in float64, so no exact answer is known")
            judged = checked.answers[name]
            found[name] = (
                _compared(context, graphs, evaluated, judged, target)
                if name == CONVERSION
                else _searched(context, graphs, evaluated, judged)
            )
        except SubjectError as error:
            found[name] = Reproduced(None, str(error))
    return replace(checked, reproducers=found)


def _compared(
    context: Context, graphs: Worker, evaluated: Evaluated, judged: Judged, target: Target | None
) -> Reproduced:
    """The first node of a file whose value its reference does not have, beside that of the reference. Raises SubjectError."""
    opened, against, computed = evaluated.opened, target.opened if target else None, evaluated.computed
    if against is None or not against.is_onnx:
        raise Failed("its reference is no ONNX file, of which a node could stand beside that of the file")
    if computed.is_turned or context.settings.steps is not None:
        raise Failed("no node is cut out of a sequence of steps, nor where images are turned")
    case = next((each.case for each in judged.error.tensors if each.verdict == Verdict.DIFFERENT), 0)
    folder = Path(tempfile.mkdtemp(prefix="reproducer-", dir=context.space))
    context.listener.phase(opened.label, "looking for the first node that differs from the reference")
    mine, theirs = (
        GraphSide(str(each.path.resolve()), str(inputs))
        for each, inputs in ((opened, computed.inputs), (against, against.worker.folder / INPUTS))
    )
    found = graphs.ask(CutPair(mine, theirs, case, dict(computed.names), str(folder), context.settings.seed, ROUNDS))
    printed = _printed(context, evaluated, MODES[opened.form.runtime][0], folder, TWO)
    if any(line.startswith("reference.onnx") and "WRONG" in line for line in printed.splitlines()):
        raise Failed("the runtime does not compute the node of the reference right by itself")
    return Reproduced(folder, write_pair_report(folder, evaluated, against.path.name, found, printed))


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
    printed = _printed(context, evaluated, found.mode, folder, ONE)
    return Reproduced(folder, write_report(folder, evaluated, replace(written, stopped=found.stopped), printed))


def _printed(context: Context, evaluated: Evaluated, mode: str, folder: Path, files: Mapping[str, str]) -> str:
    """Write the script of a reproducer, and run it as a maintainer of the runtime would. Returns what it prints.

    files: see ``write_script``. Raises Failed when nothing is wrong there.
    """
    form, settings, left = evaluated.opened.form, context.settings, context.clock.left
    write_script(folder, form.runtime, mode, settings.thread_count, files)
    limit = settings.timeout if left is None else max(1.0, min(settings.timeout, left))
    command = [evaluated.opened.worker.python, SCRIPT]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"its script could not be run: {error}") from None
    printed = (done.stdout + done.stderr).strip()
    if done.returncode != 1 or "WRONG" not in printed:
        raise Failed("a piece failed in the process of xverify, and not in that of its script")
    return printed


def with_reproducers(result: Result, checked: Sequence[Checked], target: Path) -> Result:
    """The result with the folders of the reproducers, which are put into ``target``, and a note on each row that is DIFFERENT."""
    rows = {(each.file.label, question): one for each in checked for question, one in each.reproducers.items()}
    written = [(key, one.folder) for key, one in rows.items() if one.folder is not None]
    subjects = [key[0] for key, _ in written]
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
