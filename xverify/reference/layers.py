"""Judge the layers of a candidate: capture their calls, match their names with the reference's, and replay them in float64."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import messages
from ..messages import reference as messages_reference
from ..processes.worker import Worker
from ..results.records import Layers
from ..verdict.findings import ReplayReport, Rounding
from ..verdict.layers import summarise
from ..verdict.matching import Matching, Place, match
from .build import JUDGED_ITEMS, Prepared, ReferenceProcess

CAPTURED_CASE = 0  # the input case whose layers are always compared


@dataclass(frozen=True)
class Captured:
    """The calls of the layers in one pass, and where their arrays are.

    reply: what the worker captured. folder: the folder of the captured arrays. inputs: the file of the inputs of these arrays.
    part: whether these are the first items of a pass that had more.
    case: the input case of the pass.
    matched: canonical name -> the framework's own name, for layers that were matched by order and shape.
    notes: sentences on layers that could not be matched.
    """

    reply: messages.Captured
    folder: Path
    inputs: Path
    matched: Mapping[str, str]
    notes: tuple[str, ...] = ()
    part: bool = False
    case: int = CAPTURED_CASE


@dataclass(frozen=True)
class LayerReplay:
    """Judges the layers of candidates. layers: the canonical names, in the order of their definition."""

    process: ReferenceProcess
    prepared: Prepared
    layers: Sequence[str]

    def capture(
        self,
        worker: Worker,
        folder: Path,
        returned: Path | None = None,
        *,
        part: bool = False,
        case: int = CAPTURED_CASE,
    ) -> Captured:
        """Run one untimed pass that captures the calls of the layers into a new folder.

        Layers whose names differ from the reference's, and that names.toml does not list, are matched by order and shape.
        Where more than one matching is as good, the layers in doubt are left out.
        Raises SubjectError when the pass fails.

        returned: outputs that calls of layers return in place of their own; see ``messages.Capture``.
        part: whether the first items are enough of a pass that cannot take fewer items.
        case: the input case of the pass.
        """
        captured = self._capture(worker, folder, self.layers, returned, case, part)
        called = {call.name for call in captured.reply.records}
        strange = called and called < set(self.layers) and captured.reply.others
        if not strange or worker.framework.runs_export:
            return captured
        captured = self._capture(worker, folder, None, returned, case)
        matching = self._match(captured)
        canonical = {own: name for name, own in matching.names.items()}
        calls = tuple(replace(call, name=canonical.get(call.name, call.name)) for call in captured.reply.records)
        notes = tuple(matching.notes(worker.adapter.reads()))
        return replace(captured, reply=replace(captured.reply, records=calls), matched=matching.names, notes=notes)

    def _capture(
        self,
        worker: Worker,
        folder: Path,
        wanted: Sequence[str] | None,
        returned: Path | None,
        case: int,
        part: bool = False,
    ) -> Captured:
        """Capture one pass. wanted: canonical names of layers; None: capture every layer that contains no other layer."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        # The batch size of an export is fixed, so it cannot take fewer items.
        inputs = self.prepared.inputs if worker.framework.runs_export else self.prepared.few_inputs
        part = part and inputs != self.prepared.few_inputs
        names = None if wanted is None else tuple(wanted)
        question = messages.Capture(
            inputs=str(inputs),
            case=case,
            folder=str(folder),
            wanted=names,
            returned=str(returned) if returned else None,
            first=(self.process.request.batch, JUDGED_ITEMS) if part else None,
        )
        inputs = self.prepared.few_inputs if part else inputs
        return Captured(worker.ask(question), folder, inputs, {}, part=part, case=case)

    def _match(self, captured: Captured) -> Matching:
        """Which captured layers are those of the reference (see verdict.matching.match)."""
        process, prepared, reply = self.process, self.prepared, captured.reply
        question = messages_reference.LayerOrder(
            inputs=str(captured.inputs), weights=str(prepared.weights), seed=process.request.seed
        )
        mine = process.worker.ask(question)

        def shape(file: str) -> tuple[int, ...]:
            found: tuple[int, ...] = np.load(captured.folder / file, mmap_mode="r").shape
            return found

        theirs = [
            Place(call.name, reply.kinds[call.name], shape(call.inputs[0]), shape(call.outputs[0]))
            for call in reply.records
            if call.call == 0 and call.inputs and call.outputs
        ]
        return match(mine, theirs, reply.channels_last)

    def replay(self, captured: Captured, subject: str) -> tuple[Layers, tuple[Rounding, ...]]:
        """Judge every captured layer. Returns the verdicts, and the roundings that explain findings.

        subject: the subject that was captured.
        """
        self.process.phase(f"replaying the layers of {subject}")
        report = self.report(captured)
        found = summarise(report, self.layers, subject, captured.matched, captured.notes)
        layers = tuple(replace(layer, case=captured.case) for layer in found.layers)
        return replace(found, layers=layers, cases=(captured.case,)), report.roundings

    def report(self, captured: Captured, planted: tuple[str, int] | None = None) -> ReplayReport:
        """Replay the captured layers, and return what is found.

        planted: (layer, index) of a fault that was planted in the captured model; the replay measures how visible it is.
        """
        canonical = {own: name for name, own in captured.matched.items()}
        question = messages_reference.Replay(
            folder=str(captured.folder),
            records=captured.reply.records,
            channels_last=captured.reply.channels_last,
            inputs=str(captured.inputs),
            case=captured.case,
            weights=str(self.prepared.weights),
            seed=self.process.request.seed,
            planted=planted,
            # After an error of the framework, layers were not called for another reason.
            watched=() if captured.reply.broken else tuple(canonical.get(own, own) for own in captured.reply.kinds),
        )
        return self.process.worker.ask(question)
