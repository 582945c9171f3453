"""Mutations of the forward pass: known faults are planted in layers, one at a time, and the verdict must notice and name them.

The reference and the port are two workers of torch with the same weights. A fault of the catalogue is planted in a layer of the
port; the layers of the port are then captured and replayed as in any run.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..progress import Listener
from ..reference.build import Prepared, ReferenceProcess, build_question
from ..reference.layers import LayerReplay
from ..reference.request import resolve
from ..results.records import Layers
from ..results.verdicts import Verdict
from ..verdict.layers import summarise
from ..worker import messages, messages_reference
from ..worker.messages_reference import Fault
from ..worker.process import Worker
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .records import Score, Trial
from .workers import reference_and_port

SEEDS = 5  # of clean runs


def mutate(
    model: str,
    *,
    batch: int | None = None,
    seed: int = 0,
    per_kind: int = 1,
    listener: Listener | None = None,
    threads: int | None = None,
) -> Score:
    """Plant every kind of fault that the model's layers can have, and run the model without any fault, too.

    per_kind: how many layers, drawn by ``seed``, each kind of fault is planted in.
    """
    listener = listener or Listener()
    request, folder = resolve(model, ["torch:eager"], RunSettings(batch=batch, seed=seed, cases=1, threads=threads))
    with _pair(request, folder, listener) as pair:
        plan = list(_plan(pair.faults(), seed, per_kind))
        trials = []
        for index, fault in enumerate(plan):
            listener.phase("mutate", f"{index + 1} of {len(plan)}: {fault.kind} in {fault.layer}")
            trials.append(pair.trial(fault))
    clean = [_clean_run(*each, listener) for each in _clean_requests(model, batch, seed, request.threads)]
    return Score(folder.name, tuple(trials), len(clean), tuple(filter(None, clean)))


def _plan(faults: Iterable[Fault], seed: int, per_kind: int) -> Iterator[Fault]:
    """Choose ``per_kind`` faults of each kind, in layers drawn at random."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        yield from random.Random(f"{seed} {kind}").sample(found, min(per_kind, len(found)))


def _clean_requests(model: str, batch: int | None, seed: int, threads: int) -> Iterator[tuple[Request, ModelFolder]]:
    """Requests without a fault: several seeds, in turn at batch 1 and at ``batch``, each with one thread and with all."""
    for other in range(SEEDS):
        for count in sorted({1, threads}):
            settings = RunSettings(batch=batch if other % 2 else 1, seed=seed + other, cases=1, threads=count)
            yield resolve(model, ["torch:eager"], settings)


def _clean_run(request: Request, folder: ModelFolder, listener: Listener) -> str | None:
    """Run without a fault. Returns what is wrongly found; None when every layer is EQUAL."""
    conditions = f"seed {request.seed}, {request.threads} threads, batch {request.batch}"
    listener.phase("mutate", f"a clean run: {conditions}")
    with _pair(request, folder, listener) as pair:
        layers = pair.judge(None).layers
    if layers.verdict == Verdict.EQUAL:
        return None
    assert layers.first is not None
    return f"{conditions}: {layers.verdict}, {layers.describe(layers.first)}"


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
def _pair(request: Request, folder: ModelFolder, listener: Listener) -> Iterator[_Pair]:
    with reference_and_port(request, folder, listener) as (process, prepared, port):
        pair = _Pair(process, prepared, port, folder)
        pair.load()
        yield pair


class _Pair:
    """A running reference, and a port with the same weights."""

    def __init__(self, process: ReferenceProcess, prepared: Prepared, port: Worker, folder: ModelFolder) -> None:
        self.prepared, self.port, self.folder = prepared, port, folder
        self.replay = LayerReplay(process, prepared, process.worker.ask(messages_reference.ListLayers()).layers)

    def load(self) -> None:
        """Build the port, and give it the weights and inputs of the reference."""
        self.port.ask(build_question(self.folder, "torch", None))
        self.port.ask(messages.Load(path=str(self.prepared.weights)))
        self.port.ask(messages.Prepare(inputs=str(self.prepared.inputs), mode="eager"))

    def faults(self) -> list[Fault]:
        """Every fault of the catalogue that a layer of the port can have."""
        return list(self.port.ask(messages_reference.ListFaults()).faults)

    def trial(self, fault: Fault) -> Trial:
        """Plant one fault, in place of any earlier one, and judge the port."""
        self.port.ask(messages_reference.PlantFault(layer=fault.layer, index=fault.index))
        found = self.judge((fault.layer, fault.index))
        first = found.layers.first
        place = None
        if first is not None:
            place = first.layer if first.faulty == "output" else f"the input of {first.layer}"
        kind = found.kinds.get(first.layer) if first else None
        return Trial(
            model=self.folder.name,
            kind=fault.kind,
            layer=fault.layer,
            says=fault.says,
            visible=found.visible,
            verdict=found.layers.verdict,
            found=place,
            explained=kind,
            explanation=first.explanation if first and kind else None,
        )

    def judge(self, planted: tuple[str, int] | None) -> _Judgement:
        """Capture and replay the layers of the port.

        planted: (layer, index) of the fault that the port has; None when it has none.
        """
        captured = self.replay.capture(self.port, self.port.folder / "layers")
        report = self.replay.report(captured, planted)
        kinds = {layer: explained.kind for layer, explained in report.explained.items()}
        return _Judgement(summarise(report, self.replay.layers, "torch:eager"), report.visible, kinds)
