"""The verdict put to the test: plant known faults in a model, one at a time, and see whether each is noticed, found and named.

The reference and the port are two workers of the reference framework with the same weights. A fault of the catalogue is planted in
a layer of the port; its layers are captured and replayed, as in any run.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..progress import Listener
from ..reference.build import Prepared, ReferenceProcess, build_question, prepare, reference_workers
from ..reference.layers import LayerReplay
from ..reference.request import Request, resolve
from ..results.records import Layers
from ..verdict import limits as rule
from ..verdict.findings import ReplayReport
from ..verdict.layers import summarise
from ..worker import messages, messages_reference
from ..worker.messages_reference import Fault
from ..workload.options import RunSettings
from ..workload.spec import ModelFolder

SEEDS = 5  # of clean runs
# Entries of the catalogue that compute the same: float16 and TF32 both keep ten bits behind the first.
ALIKE = {
    f"{a} {what}": (f"{b} {what}",)
    for what in ("weights", "arithmetic")
    for a, b in (("float16", "TF32"), ("TF32", "float16"))
}


@dataclass(frozen=True)
class Trial:
    """One planted fault. outcome: CAUGHT, UNTESTED when it moves its layer by less than any test could see, or MISSED.

    visible: by how many rounding floors it moves its layer's exact output. found: the first layer that differs. explanation: what
    that layer was said to behave as.
    """

    model: str
    kind: str
    layer: str
    says: str
    visible: float
    outcome: str
    verdict: str
    found: str | None = None
    explained: str | None = None
    explanation: str | None = None

    @property
    def named(self) -> bool:
        return self.outcome == "CAUGHT" and self.found == self.layer

    @property
    def understood(self) -> bool:
        return self.named and self.explained in {self.kind, *ALIKE.get(self.kind, ())}


@dataclass(frozen=True)
class Score:
    """What became of all trials. clean: runs without a fault; alarms: those of them that were not EQUAL."""

    model: str
    trials: tuple[Trial, ...]
    clean: int
    alarms: tuple[str, ...]

    def count(self, outcome: str) -> int:
        return sum(trial.outcome == outcome for trial in self.trials)

    @property
    def named(self) -> int:
        return sum(trial.named for trial in self.trials)

    @property
    def understood(self) -> int:
        return sum(trial.understood for trial in self.trials)

    def to_dict(self) -> dict[str, Any]:
        totals = {name.lower(): self.count(name) for name in ("CAUGHT", "UNTESTED", "MISSED")}
        return {
            "model": self.model,
            "planted": len(self.trials),
            **totals,
            "layer_named": self.named,
            "explained": self.understood,
            "clean_runs": self.clean,
            "false_alarms": list(self.alarms),
            "trials": [asdict(trial) for trial in self.trials],
        }


def mutate(
    model: str,
    *,
    batch: int | None = None,
    seed: int = 0,
    per_kind: int = 1,
    listener: Listener | None = None,
    threads: int | None = None,
) -> Score:
    """Plant every kind of fault that the model's layers can have, ``per_kind`` times each, at layers drawn by ``seed``."""
    listener = listener or Listener()
    request, folder = resolve(model, ["torch:eager"], RunSettings(batch=batch, seed=seed, cases=1, threads=threads))
    with (
        tempfile.TemporaryDirectory(prefix="xverify-") as directory,
        _Bench(request, folder, Path(directory), listener) as bench,
    ):
        trials = []
        plan = list(_plan(bench.faults(), seed, per_kind))
        for index, fault in enumerate(plan):
            listener.phase("mutate", f"{index + 1} of {len(plan)}: {fault.kind} in {fault.layer}")
            trials.append(bench.trial(fault))
    clean, alarms = 0, []
    for other in range(SEEDS):
        for thread_count in sorted({1, request.threads}):
            request, folder = resolve(
                model,
                ["torch:eager"],
                RunSettings(batch=batch if other % 2 else 1, seed=seed + other, cases=1, threads=thread_count),
            )
            listener.phase("mutate", f"a clean run: seed {seed + other}, {thread_count} threads, batch {request.batch}")
            with (
                tempfile.TemporaryDirectory(prefix="xverify-") as directory,
                _Bench(request, folder, Path(directory), listener) as bench,
            ):
                layers = bench.layers(bench.report(None))
                clean += 1
                if layers.verdict != "EQUAL":
                    first = layers.first
                    assert first is not None
                    alarms.append(
                        f"seed {seed + other}, {thread_count} threads, batch {request.batch}: {layers.verdict}, {first.says()}"
                    )
    return Score(folder.name, tuple(trials), clean, tuple(alarms))


def _plan(faults: Sequence[Fault], seed: int, per_kind: int) -> Iterator[Fault]:
    """Of each kind, as many as asked for, at layers drawn at random."""
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.kind, []).append(fault)
    for kind, found in kinds.items():
        yield from random.Random(f"{seed} {kind}").sample(found, min(per_kind, len(found)))


class _Bench:
    """A reference and a port with the same weights, alive."""

    def __init__(self, request: Request, folder: ModelFolder, space: Path, listener: Listener) -> None:
        reference, self.port = reference_workers(request, space, ("reference", "port"))
        self.process = ReferenceProcess(request, folder, reference, listener)
        self.folder, self.space = folder, space
        self.replay: LayerReplay

    def __enter__(self) -> _Bench:
        try:
            prepared = prepare(self.process)
            layers = self.process.worker.ask(messages_reference.ListLayers()).layers
            self.replay = LayerReplay(self.process, prepared, layers)
            self._start_port(prepared)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start_port(self, prepared: Prepared) -> None:
        self.port.start()
        self.port.ask(build_question(self.folder, "torch", None))
        self.port.ask(messages.Load(path=str(prepared.weights)))
        self.port.ask(messages.Prepare(inputs=str(prepared.inputs), mode="eager"))

    def __exit__(self, *_: object) -> None:
        self.process.worker.close()
        self.port.close()

    def faults(self) -> Sequence[Fault]:
        """Every fault of the catalogue that a layer of the model can have."""
        return self.port.ask(messages_reference.ListFaults()).faults

    def trial(self, fault: Fault) -> Trial:
        """Plant one fault, and judge the port with it."""
        self.port.ask(messages_reference.PlantFault(layer=fault.layer, index=fault.index))
        report = self.report((fault.layer, fault.index))
        layers = self.layers(report)
        first = layers.first
        outcome = "CAUGHT" if first is not None else "UNTESTED" if report.visible < rule.VISIBLE else "MISSED"
        explained = report.explained.get(first.layer) if first else None
        found = None
        if first is not None:
            found = first.layer if first.faulty == "output" else f"what {first.layer} is given"
        return Trial(
            self.folder.name,
            fault.kind,
            fault.layer,
            fault.says,
            report.visible,
            outcome,
            layers.verdict,
            found,
            explained.kind if explained else None,
            explained.says if explained else None,
        )

    def report(self, planted: tuple[str, int] | None) -> ReplayReport:
        """Capture the port as it is, and replay its layers."""
        return self.replay.report(self.replay.capture(self.port, self.space / "port" / "layers"), planted)

    def layers(self, report: ReplayReport) -> Layers:
        """One record a layer."""
        return summarise(report, self.replay.layers, "torch:eager")
