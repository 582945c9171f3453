"""The parity of training put to the test: plant known mistakes in a port's training, and see which check breaks, and what is said.

The reference and the port are two workers of torch with the same weights. Every mistake learns with the optimizer that shows it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from ..progress import Listener
from ..reference.build import ReferenceProcess, build_question, prepare, reference_workers
from ..reference.request import Request, resolve
from ..results.records import Check
from ..training.parity import Learner, TrainingParity
from ..worker import messages
from ..worker.messages_training import PlantMistake, PrepareTraining
from ..worker.process import Worker
from ..workload.optimizers import Optimizer
from ..workload.options import RunSettings
from ..workload.spec import ModelFolder
from .forward import Score, Trial
from .mistakes import MISTAKES, Mistake

CLEAN = 2  # seeds of clean runs, each with every optimizer that a mistake is planted in


def mutate_training(
    model: str, *, batch: int | None = None, seed: int = 0, threads: int | None = None, listener: Listener | None = None
) -> Score:
    """Plant every mistake that the model can have. "Layer named" counts the check; a score as mutation.mutate's."""
    listener = listener or Listener()
    request, folder = resolve(
        model, ["torch:eager"], RunSettings(task="train", batch=batch, seed=seed, cases=2, threads=threads)
    )
    found: dict[str, list[Check]] = {}
    clean, alarms = 0, []
    for other in range(CLEAN):
        for settings in dict.fromkeys(mistake.asked for mistake in MISTAKES):
            planted = [mistake for mistake in MISTAKES if mistake.asked == settings] if other == 0 else []
            asked = replace(request, optimizer=settings, seed=seed + other)
            with _pair(asked, folder, listener) as (parity, port):
                parity.prepare(curve=False)
                listener.phase("mutate", f"a clean run: seed {seed + other}, {settings.says()}")
                checks = _judge_training(parity, port, folder, settings, "")
                clean += 1
                broken = next((check for check in checks if check.verdict not in ("EQUAL", "UNTESTED")), None)
                if broken is not None:
                    what = f"{broken.name}: {broken.verdict}, {broken.says}"
                    alarms.append(f"seed {seed + other}, {settings.says()}: {what}")
                for mistake in planted:
                    if mistake.norms and not any(check.name == "statistics" for check in checks):
                        continue  # the model has no batch norm
                    listener.phase("mutate", f"{mistake.kind}, with {settings.says()}")
                    found[mistake.kind] = _judge_training(parity, port, folder, mistake.made or settings, mistake.plant)
    trials = [_trial(folder.name, each, found[each.kind]) for each in MISTAKES if each.kind in found]
    return Score(folder.name, tuple(trials), clean, tuple(alarms))


def _judge_training(
    parity: TrainingParity, port: Worker, folder: ModelFolder, settings: Optimizer, plant: str
) -> list[Check]:
    """The checks of whole steps of a port, built anew, that learns with these settings."""
    port.ask(build_question(folder, "torch", None))
    port.ask(messages.Load(path=str(parity.prepared.weights)))
    training = str(parity.prepared.training)
    port.ask(PrepareTraining(inputs=training, mode="eager", optimizer=settings, match=False))
    if plant:
        port.ask(PlantMistake(plant=plant))
    return parity.judge_steps(Learner("torch:eager", port, replace(settings, variants=()), (), {}, ()))


@contextmanager
def _pair(request: Request, folder: ModelFolder, listener: Listener) -> Iterator[tuple[TrainingParity, Worker]]:
    """A reference with its batches and weights settled, and the process of a port."""
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        reference, port = reference_workers(request, Path(directory), ("reference", "port"))
        process = ReferenceProcess(request, folder, reference, listener)
        try:
            prepared = prepare(process)
            port.start()
            yield TrainingParity(process, prepared), port
        finally:
            reference.close()
            port.close()


def _trial(model: str, mistake: Mistake, checks: list[Check]) -> Trial:
    broken = [check for check in checks if check.verdict in ("DIFFERENT", "INVALID", "DRIFT")]
    first = next(iter(broken), None)
    understood = [check for check in broken if mistake.says in f"{check.difference} {check.says}"]
    return Trial(
        model,
        mistake.kind,
        mistake.check,
        mistake.kind,
        visible=float("inf"),
        outcome="CAUGHT" if broken else "MISSED",
        verdict=max(
            (check.verdict for check in broken), default="EQUAL", key=("EQUAL", "DRIFT", "DIFFERENT", "INVALID").index
        ),
        found=first.name if first else None,
        explained=mistake.kind if understood else None,
        explanation="; ".join(
            f"{check.name}, step {check.step}: {check.difference} {check.says}" for check in (understood or broken)[:1]
        ),
    )
