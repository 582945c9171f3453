"""Run the reference twice on one input, before anything is believed that it computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..errors import Refused
from ..messages.soundness import Repeat, Repeated
from .build import Prepared, ReferenceProcess, first_inputs

ITEMS = 2  # of the input on which a reference runs twice, where it draws no random numbers


def run_twice(process: ReferenceProcess, prepared: Prepared) -> tuple[Repeated, str]:
    """How two passes on one input compare, in float64 where that is possible, and why the precision is not float64."""
    process.phase("running twice on one input, to see whether it is random")
    question = _question(process, prepared)
    try:
        reply = _on_few_items(process, question) or process.worker.ask(question)
    except Refused as error:
        single = replace(question, float64=False, folder=str(process.space / "repeated-in-float32"))
        return process.worker.ask(single), str(error)
    if not reply.other_precision:
        return reply, ""
    return reply, (
        f"float64 was asked for, and the model has {', '.join(reply.other_precision)}: its file loads a model, or names a dtype"
    )


def _on_few_items(process: ReferenceProcess, question: Repeat) -> Repeated | None:
    """The comparison on the first items; None where it may hide something: the model drew random numbers, or differs already.

    A clock or a counter shows in few items as in many. Random numbers may leave most items as they are, and only those of torch,
    numpy and python are seen while they are drawn. Code that shuffles the items draws none for a single item.
    """
    if process.request.batch <= ITEMS or process.state or not process.replays:
        return None
    inputs = first_inputs(process, Path(question.inputs), ITEMS)
    try:
        reply = process.worker.ask(replace(question, inputs=str(inputs), folder=f"{question.folder}-first"))
    except Refused:  # its code may need all of them
        return None
    return None if reply.place or reply.draws else reply


def training_randomness(process: ReferenceProcess, prepared: Prepared) -> str:
    """Why nothing can be compared with the reference in training mode, because it is random; "" when it is not.

    Dropout layers have been disabled.
    """
    reply = process.worker.ask(replace(_question(process, prepared), training=True))
    return randomness(process, reply) if reply.place else prepared.random


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
        dropout = "Dropout that xverify cannot disable (neither a layer nor F.dropout)"
    seeds = f" when it is given another seed than the one that it sets ({repeated.seeded})" if repeated.seeded else ""
    return (
        f"the reference is random: two passes of {process.framework} on one input first differ in {repeated.place}, by "
        f"{repeated.share:.2g} of the values{seeds}. {dropout}, added noise or another random operation is there; nothing can "
        "be compared until it is off"
    )
