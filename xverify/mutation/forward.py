"""Mutations of the forward pass: known faults are planted in layers, one at a time, and the verdict must notice and name them.

The reference and the port have the same weights. A fault of the catalogue is planted in a layer of the port; the layers of the port
are then captured and replayed as in any run. The catalogue is written in torch. In a port of torch the layer itself gets the fault.
In every other port (see ``replaced``) the layer returns what torch's layer with the fault makes of the inputs that the port gave
its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .. import messages
from ..messages import reference as messages_reference
from ..messages.reference import Fault
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import Prepared, ReferenceProcess, build_question
from ..reference.folding import Folding
from ..reference.layers import Captured, LayerReplay
from ..results.records import Layers
from ..results.verdicts import Verdict
from ..verdict.layers import summarise
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .records import Score, Trial
from .replaced import NotPlanted, ReplacedCalls
from .workers import TORCH, Subject, reference_and_port, request_for

SEEDS = 5  # of clean runs


def mutate(
    model: str,
    *,
    subject: str = TORCH,
    batch: int | None = None,
    seed: int = 0,
    per_kind: int = 1,
    listener: Listener | None = None,
    threads: int | None = None,
) -> Score:
    """Plant every kind of fault that the model's layers can have, and run the model without any fault, too.

    subject: the framework of the port, and its mode. Layers are captured in eager mode where the framework has one.
    per_kind: how many layers, drawn by ``seed``, each kind of fault is planted in.
    """
    listener, port = listener or Listener(), Subject.parse(subject)
    settings = RunSettings(batch=batch, seed=seed, cases=1, threads=threads)
    request, folder = request_for(model, port, settings)
    trials, unplanted = list[Trial](), list[str]()
    with _pair(request, folder, port, listener) as pair:
        plan = list(_plan(pair.faults(), seed, per_kind))
        for index, fault in enumerate(plan):
            listener.phase("mutate", f"{index + 1} of {len(plan)}: {fault.kind} in {fault.layer}")
            try:
                trials.append(pair.trial(fault))
            except NotPlanted as error:
                unplanted.append(f"{fault.kind} in {fault.layer}: {error}")
    clean = [_clean_run(*each, port, listener) for each in _clean_requests(model, port, batch, seed, request.threads)]
    return Score(
        folder.name,
        tuple(trials),
        len(clean),
        tuple(filter(None, clean)),
        subject=port.label,
        unplanted=tuple(unplanted),
    )


def _plan(faults: Iterable[Fault], seed: int, per_kind: int) -> Iterator[Fault]:
    """Choose ``per_kind`` faults of each kind, in layers drawn at random."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        yield from random.Random(f"{seed} {kind}").sample(found, min(per_kind, len(found)))


def _clean_requests(
    model: str, subject: Subject, batch: int | None, seed: int, threads: int
) -> Iterator[tuple[Request, ModelFolder]]:
    """Requests without a fault: several seeds, in turn at batch 1 and at ``batch``, each with one thread and with all."""
    for other in range(SEEDS):
        for count in sorted({1, threads}):
            settings = RunSettings(batch=batch if other % 2 else 1, seed=seed + other, cases=1, threads=count)
            yield request_for(model, subject, settings)


def _clean_run(request: Request, folder: ModelFolder, subject: Subject, listener: Listener) -> str | None:
    """Run without a fault. Returns what is wrongly found; None when every layer is EQUAL."""
    conditions = f"seed {request.seed}, {request.threads} threads, batch {request.batch}"
    listener.phase("mutate", f"a clean run: {conditions}")
    with _pair(request, folder, subject, listener) as pair:
        layers = pair.judge(pair.capture()).layers
    if layers.verdict == Verdict.EQUAL:
        return None
    return f"{conditions}: {layers.verdict}" + (f", {layers.describe(layers.first)}" if layers.first else "")


@dataclass(frozen=True)
class _Judgement:
    """What a replay of the port found.

    visible: the change of the layer's exact output by the planted fault, in noise floors; 0 without a fault.
    kinds: layer -> the kind of fault that explains it.
    """

    layers: Layers
    visible: float
    kinds: dict[str, str]


@contextmanager
def _pair(request: Request, folder: ModelFolder, subject: Subject, listener: Listener) -> Iterator[_Pair]:
    with reference_and_port(request, folder, subject, listener) as (process, prepared, port):
        pair = _Pair(process, prepared, port, folder, subject)
        pair.load()
        yield pair


class _Pair:
    """A running reference, and a port with the same weights."""

    def __init__(
        self, process: ReferenceProcess, prepared: Prepared, port: Worker, folder: ModelFolder, subject: Subject
    ) -> None:
        self.prepared, self.port, self.folder, self.subject = prepared, port, folder, subject
        self.batch = process.request.batch
        self.folding = Folding.of_port(folder, subject.adapter.reads(), prepared, process.request.reference)
        self.replay = LayerReplay(process, prepared, process.layers())
        self.replaced = None if subject.is_torch else ReplacedCalls(self.replay, port)

    def load(self) -> None:
        """Build the port, and give it the weights and inputs of the reference."""
        question = build_question(self.folder, self.subject.adapter.reads(), None, self.subject.mode, batch=self.batch)
        self.port.ask(self.folding.question(question, self.folder))
        self.port.ask(messages.Load(path=str(self.folding.file(self.prepared.weights, self.port.folder))))
        self.port.ask(messages.Prepare(inputs=str(self.prepared.inputs), mode=self.subject.mode))

    def faults(self) -> list[Fault]:
        """Every fault of the catalogue that a layer of the port can have."""
        if self.replaced is not None:
            return self.replaced.faults()
        reply = self.port.ask(messages_reference.ListFaults())
        return list(reply)

    def trial(self, fault: Fault) -> Trial:
        """Plant one fault, in place of any earlier one, and judge the port. Raises NotPlanted where that is not possible."""
        if self.replaced is not None:
            captured = self.replaced.capture(fault)
        else:
            self.port.ask(messages_reference.PlantFault(layer=fault.layer, index=fault.index))
            captured = self.capture()
        finding = self.judge(captured, (fault.layer, fault.index))
        first = finding.layers.first
        place = None
        if first is not None:
            place = first.layer if first.faulty == "output" else f"the input of {first.layer}"
        kind = finding.kinds.get(first.layer) if first else None
        return Trial(
            model=self.folder.name,
            kind=fault.kind,
            layer=fault.layer,
            says=fault.says,
            visible=finding.visible,
            verdict=finding.layers.verdict,
            found=place,
            explained=kind,
            explanation=first.explanation if first and kind else None,
        )

    def capture(self) -> Captured:
        """Capture the layers of the port as it is."""
        return self.replay.capture(self.port, self.port.folder / "layers")

    def judge(self, captured: Captured, planted: tuple[str, int] | None = None) -> _Judgement:
        """Replay the captured layers.

        planted: (layer, index) of the fault that the port has; None when it has none.
        """
        report = self.replay.report(captured, planted)
        kinds = {layer: explained.kind for layer, explained in report.explained.items()}
        layers = summarise(report, self.replay.layers, self.subject.label, captured.matched)
        return _Judgement(layers, report.visible, kinds)
