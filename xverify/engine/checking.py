"""Calls of a subject that are made to judge it, after all that is timed and captured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import Refused
from ..messages.soundness import CallAsUser, Repeat
from ..processes.worker import Worker
from ..reference.build import Prepared
from ..reference.truth import Truth
from . import judging
from .stages import Calls, Repeated


def further_calls(
    worker: Worker, kept: Mapping[int, Path], again: Repeated, prepared: Prepared, truth: Truth, made: Calls | None
) -> Calls:
    """Find out where two calls on one input differ, if they do, and then call the model as its users do.

    kept: input case -> file of the timed outputs. again: the second call.
    made: those of another mode of the same model; its call as users make it is also that of this one. None: no other mode has one.
    """
    found = judging.repeated(kept, again.second, truth)
    place = _random_place(worker, prepared) if found.random else ""
    if made is not None:
        return replace(made, second=again.second, random_place=place)
    case, user = again.case, worker.folder / "user.npz"
    called = worker.ask(CallAsUser(case=case, path=str(user)))
    return Calls(case, again.second, user if called else None, place)


def _random_place(worker: Worker, prepared: Prepared) -> str:
    """Where two passes of this subject on one input differ; "" when they agree layer by layer."""
    inputs = prepared.inputs if worker.framework.runs_export else prepared.few_inputs
    try:
        question = Repeat(inputs=str(inputs), case=0, folder=str(worker.folder / "repeated"), random=True)
        return worker.ask(question).place
    except Refused:  # its layers cannot be captured; the difference itself is known already
        return ""
