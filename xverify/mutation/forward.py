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
from ..reference.reference import Reference, build_arguments
from ..reference.request import Request, resolve
from ..results.records import Layers
from ..results.verdicts import Verdict
from ..verdict import limits
from ..verdict.layers import summarise
from ..worker.process import Worker
from ..workload.spec import ModelFolder
from .records import PlantableFault, Score, Trial, TrialOutcome
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
    request, folder = resolve(model, ["torch:eager"], batch=batch, seed=seed, cases=1, threads=threads)
    with _pair(request, folder, listener) as pair:
        plan = list(_plan(pair.faults(), seed, per_kind))
        trials = []
        for index, fault in enumerate(plan):
            listener.phase("mutate", f"{index + 1} of {len(plan)}: {fault.kind} in {fault.layer}")
            trials.append(pair.trial(fault))
    clean = [_clean_run(*each, listener) for each in _clean_requests(model, batch, seed, request.threads)]
    return Score(folder.name, tuple(trials), len(clean), tuple(filter(None, clean)))


def _plan(faults: Iterable[PlantableFault], seed: int, per_kind: int) -> Iterator[PlantableFault]:
    """Of each kind, as many as asked for, in layers drawn at random."""
    kinds: dict[str, list[PlantableFault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        yield from random.Random(f"{seed} {kind}").sample(found, min(per_kind, len(found)))


def _clean_requests(model: str, batch: int | None, seed: int, threads: int) -> Iterator[tuple[Request, ModelFolder]]:
    """Runs without a fault: several seeds, each with one thread and with all, in turn at batch 1 and at ``batch``."""
    for other in range(SEEDS):
        for count in sorted({1, threads}):
            yield resolve(
                model,
                ["torch:eager"],
                batch=batch if other % 2 else 1,
                seed=seed + other,
                cases=1,
                threads=count,
            )


def _clean_run(request: Request, folder: ModelFolder, listener: Listener) -> str | None:
    """What is wrongly found in a run without a fault; None when all is EQUAL."""
    conditions = f"seed {request.seed}, {request.threads} threads, batch {request.batch}"
    listener.phase("mutate", f"a clean run: {conditions}")
    with _pair(request, folder, listener) as pair:
        layers = pair.judge(None).layers
    if layers.verdict == Verdict.EQUAL:
        return None
    assert layers.first is not None
    return f"{conditions}: {layers.verdict}, {layers.first.says()}"


@dataclass(frozen=True)
class _Judgement:
    """What a replay of the port found.

    visible: by how many noise floors the planted fault changes the exact output of its layer; 0 without a fault.
    kinds: layer -> the kind of fault that explains it.
    """

    layers: Layers
    visible: float
    kinds: dict[str, str]


@contextmanager
def _pair(request: Request, folder: ModelFolder, listener: Listener) -> Iterator[_Pair]:
    with reference_and_port(request, folder, listener) as (reference, port):
        pair = _Pair(reference, port, folder)
        pair.load()
        yield pair


class _Pair:
    """A running reference, and a port with the same weights."""

    def __init__(self, reference: Reference, port: Worker, folder: ModelFolder) -> None:
        self.reference, self.port, self.folder = reference, port, folder

    def load(self) -> None:
        """Build the port, and give it the weights and inputs of the reference."""
        self.port.request("build", **build_arguments(self.folder, "torch", None))
        self.port.request("load", path=str(self.reference.weights))
        self.port.request("prepare", inputs=str(self.reference.inputs), mode="eager")

    def faults(self) -> list[PlantableFault]:
        """Every fault of the catalogue that a layer of the port can have."""
        return [PlantableFault(**fault) for fault in self.port.request("faults")["faults"]]

    def trial(self, fault: PlantableFault) -> Trial:
        """Plant one fault, in place of any earlier one, and judge the port."""
        self.port.request("plant", layer=fault.layer, index=fault.index)
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
            outcome=_outcome(found),
            verdict=found.layers.verdict,
            found=place,
            explained=kind,
            explanation=first.explanation if first and kind else None,
        )

    def judge(self, planted: tuple[str, int] | None) -> _Judgement:
        """Capture the layers of the port as it is now, and replay them.

        planted: the layer and the index of the fault that the port has.
        """
        place = self.port.folder / "layers"
        known = self.reference.list_layers()
        captured = self.reference.ask_capture(self.port, place, known)
        reply = self.reference.ask_replay(captured, place, planted)
        kinds = {layer: explained["kind"] for layer, explained in reply["explained"].items()}
        return _Judgement(summarise(reply, known, "torch:eager"), reply["visible"], kinds)


def _outcome(found: _Judgement) -> TrialOutcome:
    if found.layers.first is not None:
        return TrialOutcome.CAUGHT
    return TrialOutcome.UNTESTED if found.visible < limits.VISIBLE else TrialOutcome.MISSED
