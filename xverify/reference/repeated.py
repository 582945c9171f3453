"""Run the reference twice on one input, before anything is believed that it computes."""

from __future__ import annotations

from dataclasses import replace

from ..errors import Crashed, SubjectError, TimedOut
from ..worker.messages_soundness import Repeat, Repeated
from .build import Prepared, ReferenceProcess


def run_twice(process: ReferenceProcess, prepared: Prepared) -> tuple[Repeated, str]:
    """How two passes on one input compare, in float64 where that is possible, and why the precision is not float64."""
    process.phase("running twice on one input, to see whether it is random")
    question = _question(process, prepared)
    try:
        found = process.worker.ask(question)
    except (Crashed, TimedOut):
        raise
    except SubjectError as error:
        single = replace(question, float64=False, folder=str(process.space / "repeated-in-float32"))
        return process.worker.ask(single), str(error)
    if not found.other_precision:
        return found, ""
    return found, (
        f"float64 was asked for, and the model has {', '.join(found.other_precision)}: its file loads a model, or names a dtype"
    )


def training_randomness(process: ReferenceProcess, prepared: Prepared) -> str:
    """Why nothing can be compared with the reference in training mode, because it is random; "" when it is not.

    Dropout layers have been disabled.
    """
    found = process.worker.ask(replace(_question(process, prepared), training=True))
    return randomness(process, found) if found.place else prepared.random


def _question(process: ReferenceProcess, prepared: Prepared) -> Repeat:
    return Repeat(
        inputs=str(prepared.few_inputs),
        case=0,
        folder=str(process.space / "repeated"),
        float64=True,
        weights=str(prepared.weights),
        seed=process.request.seed if process.replays else None,
    )


def randomness(process: ReferenceProcess, repeated: Repeated) -> str:
    """Why nothing can be compared with a random reference."""
    dropout = "Dropout that stays on in inference (F.dropout without training=self.training)"
    if process.request.trains:
        dropout = "Dropout that xverify cannot disable (F.dropout instead of a layer nn.Dropout)"
    seeds = f" when it is given another seed than the one that it sets ({repeated.seeded})" if repeated.seeded else ""
    return (
        f"the reference is random: two passes of {process.framework} on one input first differ in {repeated.place}, by "
        f"{repeated.share:.2g} of the values{seeds}. {dropout}, added noise or another random operation is there; nothing can "
        "be compared until it is off"
    )
