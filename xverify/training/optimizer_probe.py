"""Optimizers without a model to train: the same weights, state and gradients for every framework, and how each moves them.

Gradients are log-uniform from 1e-10 to 10, so that eps counts. Each step begins from torch's mathematics' own state of that step.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import host
from ..environments import store as environments
from ..errors import Unsupported
from ..framework.adapter import Framework
from ..progress import Listener
from ..reference.build import build_question
from ..weights import npz
from ..worker.messages_training import ApplyGradients, PrepareTraining, TrainingState
from ..worker.process import Worker
from ..workload import datasets as data
from ..workload import optimizers
from ..workload.keys import state_key
from ..workload.optimizers import VARIANTS, Optimizer, optimizer
from ..workload.spec import find_model
from . import optimizer_check

MODEL = "mlp"  # whose parameters are moved; nothing of it is computed but its first step
STEPS = 3
PROBED = (
    optimizer("sgd"),
    optimizer("sgd", momentum=0.9),
    optimizer("sgd", momentum=0.9, nesterov=True),
    optimizer("sgd", momentum=0.9, weight_decay=0.01),
    optimizer("adam"),
    optimizer("adamw"),
    optimizer("rmsprop"),
)


@dataclass(frozen=True)
class Probed:
    """One framework's optimizer. rho: the worst change over its floor. difference: the name of what is its own."""

    framework: str
    settings: Optimizer
    match: bool
    verdict: str
    rho: float | None
    difference: str = ""
    says: str = ""


def probe(adapter: type[Framework], space: Path, seed: int, listener: Listener) -> list[Probed]:
    """Every optimizer of PROBED, the framework's own and the exact one; one that the framework lacks is a record with its reason.

    Raises SubjectError when the framework itself cannot run.
    """
    folder = find_model(MODEL)
    place = space / adapter.name
    place.mkdir()
    environment = environments.chosen(adapter)
    python = environment.interpreter if environment else sys.executable
    batches = place / "batches.npz"
    npz.save_file(data.synthetic(folder.spec, 4, seed, 1).arrays, batches)
    found = []
    worker = Worker(adapter, python, place, host.cores(), "cpu", 1800.0)
    try:
        worker.start()
        for match in (False, True):
            for settings in PROBED:
                listener.phase(adapter.name, settings.says() + (", matched" if match else ""))
                found.append(_probed(worker, adapter, batches, settings, match, seed))
    finally:
        worker.close()
    return found


def _probed(
    worker: Worker, adapter: type[Framework], batches: Path, settings: Optimizer, match: bool, seed: int
) -> Probed:
    try:
        built = worker.ask(build_question(find_model(MODEL), adapter.name, None))
        mode = next(iter(adapter.modes))
        reply = worker.ask(PrepareTraining(inputs=str(batches), mode=mode, optimizer=settings, match=match))
    except Unsupported as error:
        return Probed(adapter.name, settings, match, "UNSUPPORTED", None, says=str(error))
    shapes = {name: tuple(shape) for name, shape in built.shapes.items()}
    return _steps(worker, adapter.name, shapes, settings, reply.optimizer.variants, match, seed)


def _steps(
    worker: Worker,
    name: str,
    shapes: dict[str, tuple[int, ...]],
    settings: Optimizer,
    variants: tuple[str, ...],
    match: bool,
    seed: int,
) -> Probed:
    """Several updates, each judged by itself; the worst of them."""
    noise = np.random.default_rng(seed)
    weights = {key: noise.normal(0, 0.05, shape).astype(np.float32) for key, shape in shapes.items()}
    optimizer_state = {
        key: [np.zeros(shape, np.float32) for _ in settings.state_names] for key, shape in shapes.items()
    }
    worst, own = 0.0, 0.0
    for step in range(STEPS):
        gradients = {
            key: (10.0 ** noise.uniform(-10, 1, shape) * noise.choice((-1, 1), shape)).astype(np.float32)
            for key, shape in shapes.items()
        }
        files = [worker.folder / f"{what}.npz" for what in ("weights", "optimizer_state", "gradients", "after")]
        flat = {state_key(key, i): array for key, arrays in optimizer_state.items() for i, array in enumerate(arrays)}
        for path, arrays in zip(files, (weights, flat, gradients)):
            npz.save_file(arrays, path)
        state = TrainingState(weights=str(files[0]), optimizer_state=str(files[1]), steps=step)
        worker.ask(ApplyGradients(state=state, gradients=str(files[2]), path=str(files[3])))
        after = npz.load_file(files[3])
        for key, w in weights.items():
            taken = (
                after[f"weight/{key}"],
                [after[f"state/{state_key(key, i)}"] for i in range(len(optimizer_state[key]))],
            )

            given = w, gradients[key], optimizer_state[key], step + 1, *taken
            worst = max(worst, optimizer_check.judge(settings, *given)[0])
            own = max(own, optimizer_check.judge(replace(settings, variants=variants), *given)[0])
        for key, w in weights.items():
            new, values = optimizers.update(
                settings, w.astype(np.float64), gradients[key].astype(np.float64),
                [slot.astype(np.float64) for slot in optimizer_state[key]], step + 1, np.sqrt,
            )  # fmt: skip
            weights[key] = new.astype(np.float32)
            optimizer_state[key] = [value.astype(np.float32) for value in values]
    if worst <= optimizer_check.EQUAL_RHO:
        return Probed(name, settings, match, "EQUAL", worst)
    if variants and own <= optimizer_check.EQUAL_RHO:
        says = "; ".join(VARIANTS[form] for form in variants)
        return Probed(name, settings, match, "DRIFT", worst, ", ".join(variants), says)
    verdict = "DRIFT" if worst <= optimizer_check.DRIFT_RHO else "DIFFERENT"
    return Probed(name, settings, match, verdict, worst, says=f"{worst:.3g} x its floor")
