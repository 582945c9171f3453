"""How large the activations of the reference's model are, which is asked before any subject builds its model."""

from __future__ import annotations

from ..errors import Refused
from ..framework.adapter import Activations
from ..messages import reference as messages_reference
from .build import Prepared, ReferenceProcess


def of_items(process: ReferenceProcess, prepared: Prepared) -> Activations | None:
    """The sizes of a pass on the items of ``few_inputs``; None where they cannot be known without computing it.

    Other batch sizes are not asked for. The model was called with these inputs before, so that what its code keeps between two
    calls, such as a mask of their size, has values already.
    """
    question = messages_reference.SizeActivations(inputs=str(prepared.few_inputs), training=process.request.trains)
    try:
        return process.worker.ask(question)
    except Refused:
        return None
