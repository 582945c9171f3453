"""The ladder of training put to the test: plant known mistakes in a port's training, and see which rung breaks, and what is said.

The reference and the port are two workers of torch with the same weights. Every mistake learns with the optimizer that shows it.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from . import frameworks
from .ladder import Ladder, Learner
from .mistakes import MISTAKES, Mistake
from .mutation import Score, Trial
from .optimizers import Optimizer
from .process import Worker
from .records import Rung
from .reference import Reference, build_arguments
from .request import Request, resolve
from .spec import ModelFolder
from .watch import Watch

CLEAN = 2  # seeds of clean runs, each with every optimizer that a mistake is planted in


def mutate_training(
    model: str, *, batch: int | None = None, seed: int = 0, threads: int | None = None, watch: Watch | None = None
) -> Score:
    """Plant every mistake that the model can have. "Layer named" counts the rung; a score as mutation.mutate's."""
    watch = watch or Watch()
    request, folder = resolve(model, ["torch:eager"], task="train", batch=batch, seed=seed, cases=2, threads=threads)
    trials = []
    for mistake in MISTAKES:
        watch.phase("mutate", f"{mistake.kind}, with {mistake.asked.says()}")
        rungs = _climb(replace(request, optimizer=mistake.asked), folder, mistake.made, mistake.plant, watch)
        if mistake.norms and not any(rung.name == "statistics" for rung in rungs):
            continue  # the model has no batch norm
        trials.append(_trial(folder.name, mistake, rungs))
    clean, alarms = 0, []
    asked = list(dict.fromkeys(mistake.asked for mistake in MISTAKES))
    for other in range(CLEAN):
        for settings in asked:
            watch.phase("mutate", f"a clean run: seed {seed + other}, {settings.says()}")
            rungs = _climb(replace(request, optimizer=settings, seed=seed + other), folder, None, "", watch)
            clean += 1
            broken = next((rung for rung in rungs if rung.verdict not in ("EQUAL", "UNTESTED")), None)
            if broken is not None:
                alarms.append(f"seed {seed + other}, {settings.says()}: {broken.name}: {broken.verdict}, {broken.says}")
    return Score(folder.name, tuple(trials), clean, tuple(alarms))


def _climb(request: Request, folder: ModelFolder, made: Optimizer | None, plant: str, watch: Watch) -> list[Rung]:
    """The rungs of whole steps of a port that learns with these settings."""
    with _pair(request, folder, watch) as (reference, port):
        ladder = Ladder(request, reference)
        ladder.prepare()
        settings = made or ladder.optimizer
        port.request("learn", inputs=str(reference.training), mode="eager", optimizer=settings.to_dict(), match=False)
        if plant:
            port.request("mistake", plant=plant)
        learner = Learner("torch:eager", port, replace(settings, forms=()), (), {}, ())
        return ladder.climb(learner)


@contextmanager
def _pair(request: Request, folder: ModelFolder, watch: Watch) -> Iterator[tuple[Reference, Worker]]:
    """A reference with its batches and weights settled, and a port with the same weights."""
    torch = frameworks.load("torch")
    python = request.python.get("torch", sys.executable)
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        workers = []
        for name in ("reference", "port"):
            place = Path(directory) / name
            place.mkdir()
            workers.append(Worker(torch, python, place, request.threads, "cpu", request.timeout))
        reference, port = Reference(request, folder, workers[0], watch), workers[1]
        try:
            reference.settle()
            port.start()
            port.request("build", **build_arguments(folder, "torch", None))
            port.request("load", path=str(reference.weights))
            yield reference, port
        finally:
            for worker in workers:
                worker.close()


def _trial(model: str, mistake: Mistake, rungs: list[Rung]) -> Trial:
    broken = [rung for rung in rungs if rung.verdict in ("DIFFERENT", "INVALID", "DRIFT")]
    first = next(iter(broken), None)
    understood = [rung for rung in broken if mistake.says in f"{rung.difference} {rung.says}"]
    return Trial(
        model,
        mistake.kind,
        mistake.rung,
        mistake.kind,
        visible=float("inf"),
        outcome="CAUGHT" if broken else "MISSED",
        verdict=max(
            (rung.verdict for rung in broken), default="EQUAL", key=("EQUAL", "DRIFT", "DIFFERENT", "INVALID").index
        ),
        found=first.name if first else None,
        explained=mistake.kind if understood else None,
        explanation="; ".join(
            f"{rung.name}, step {rung.step}: {rung.difference} {rung.says}" for rung in (understood or broken)[:1]
        ),
    )
