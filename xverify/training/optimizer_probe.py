"""Compare the optimizers of all frameworks without training a model: all start from the same weights, state and gradients.

Gradients are log-uniform from 1e-10 to 10, so that eps matters. The state before each step is computed by torch's formula.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from .. import host
from ..errors import Unsupported
from ..framework.adapter import Framework
from ..messages.training import ApplyGradients, PrepareTraining, TrainingState
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import build_question
from ..results.figures import shown_ratio
from ..results.verdicts import Verdict
from ..verdict import limits
from ..weights import npz
from ..weights.canonical import Array
from ..workload import datasets as data
from ..workload.keys import state_key
from ..workload.optimizers import VARIANTS, Optimizer, optimizer, update
from ..workload.recipe import Recipe
from ..workload.spec import find_model
from .optimizer_check import judge

MODEL = "mlp"  # the optimizers change its parameters; its forward pass is computed only to build the optimizer
STEPS = 3
PROBED = (
    optimizer("sgd"),
    optimizer("sgd", momentum=0.9),
    optimizer("sgd", momentum=0.9, nesterov=True),
    optimizer("sgd", momentum=0.9, weight_decay=0.01),
    optimizer("adam"),
    optimizer("adam", recipe=Recipe(amsgrad=True)),
    optimizer("adamw"),
    optimizer("rmsprop"),
    optimizer("adagrad"),
    optimizer("lion", weight_decay=0.01),
    optimizer("adafactor", weight_decay=0.01),
)
UNSUPPORTED = "UNSUPPORTED"

Arrays = dict[str, Array]  # parameter -> array
States = dict[str, list[Array]]  # parameter -> the arrays of its optimizer state


@dataclass(frozen=True)
class Probed:
    """The result of one optimizer of one framework.

    match: whether torch's formulas were computed on the framework's tensors; otherwise the framework's own optimizer was used.
    verdict: a Verdict, or UNSUPPORTED.
    rho: the worst residual / noise floor over all steps and parameters; None when it is unsupported.
    difference: names of the formula variants that explain it; "" when none is needed.
    says: what differs.
    """

    framework: str
    settings: Optimizer
    match: bool
    verdict: str
    rho: float | None
    difference: str = ""
    says: str = ""


@dataclass(frozen=True)
class Before:
    """The weights, state and gradients before one step. number: of the step, from 0."""

    number: int
    weights: Arrays
    state: States
    gradients: Arrays


@dataclass(frozen=True)
class After:
    """The weights and the state after a step of a framework's optimizer. axes: see Training.factored."""

    weights: Arrays
    state: States
    axes: dict[str, tuple[int, ...]]


def probe(adapter: type[Framework], space: Path, seed: int, listener: Listener) -> list[Probed]:
    """Probe every optimizer of PROBED: first the framework's own, then torch's formulas on the framework's tensors.

    adapter: of the framework.
    space: a folder for files.
    seed: of weights and gradients.
    listener: receives the name of every optimizer.
    Raises SubjectError when the framework itself cannot run. An optimizer that it does not have gets the verdict UNSUPPORTED.
    """
    folder = find_model(MODEL)
    place = space / adapter.name
    place.mkdir()
    batches = place / "batches.npz"
    npz.save_file(data.synthetic(folder.spec, 4, seed, 1).arrays, batches)
    found = []
    with Worker(adapter, interpreter(adapter), place, host.cores(), "cpu", 1800.0) as worker:
        for match in (False, True):
            for settings in PROBED:
                listener.phase(adapter.name, settings.says() + (", matched" if match else ""))
                found.append(_probed(worker, adapter, batches, settings, match, seed))
    return found


def _probed(
    worker: Worker, adapter: type[Framework], batches: Path, settings: Optimizer, match: bool, seed: int
) -> Probed:
    """Build one optimizer, and judge its steps."""
    try:
        built = worker.ask(build_question(find_model(MODEL), adapter.reads(), None))
        mode = next(iter(adapter.modes))
        reply = worker.ask(PrepareTraining(inputs=str(batches), mode=mode, optimizer=settings, match=match))
    except Unsupported as error:
        return Probed(adapter.name, settings, match, UNSUPPORTED, None, says=str(error))
    shapes = {name: tuple(shape) for name, shape in built.shapes.items()}
    variants = reply.optimizer.variants
    rho, own_rho = _worst(worker, shapes, settings, replace(settings, variants=variants), seed)
    if rho <= limits.EQUAL_RHO:
        return Probed(adapter.name, settings, match, Verdict.EQUAL, rho)
    if variants and own_rho <= limits.EQUAL_RHO:
        says = "; ".join(VARIANTS[variant] for variant in variants)
        return Probed(adapter.name, settings, match, Verdict.DRIFT, rho, ", ".join(variants), says)
    verdict = limits.failing(rho, limits.STEP)
    return Probed(
        adapter.name, settings, match, verdict, rho, says=f"the error is {shown_ratio(rho, 3)} x its noise floor"
    )


def _worst(
    worker: Worker, shapes: dict[str, tuple[int, ...]], settings: Optimizer, own: Optimizer, seed: int
) -> tuple[float, float]:
    """The worst rho of several steps, each judged separately: (against torch's formula, against the framework's own).

    own: the settings with the formula variants of the framework.
    """
    noise = np.random.default_rng(seed)
    weights = {key: noise.normal(0, 0.05, shape).astype(np.float32) for key, shape in shapes.items()}
    state = {key: [np.zeros(shape, np.float32) for _ in settings.state_names] for key, shape in shapes.items()}
    worst, own_worst = 0.0, 0.0
    for number in range(STEPS):
        before = Before(number, weights, state, _gradients(shapes, noise))
        after = _step(worker, before)
        for key in shapes:
            worst = max(worst, _judged(settings, key, before, after))
            own_worst = max(own_worst, _judged(own, key, before, after))
        weights, state = _following(settings, before)
    return worst, own_worst


def _gradients(shapes: dict[str, tuple[int, ...]], noise: np.random.Generator) -> Arrays:
    return {
        key: (10.0 ** noise.uniform(-10, 1, shape) * noise.choice((-1, 1), shape)).astype(np.float32)
        for key, shape in shapes.items()
    }


def _step(worker: Worker, before: Before) -> After:
    """Let the framework's optimizer make one step."""
    names = ("weights", "optimizer_state", "gradients", "after")
    weights, optimizer_state, gradients, after = (worker.folder / f"{name}.npz" for name in names)
    npz.save_file(before.weights, weights)
    flat = {state_key(key, index): array for key, arrays in before.state.items() for index, array in enumerate(arrays)}
    npz.save_file(flat, optimizer_state)
    npz.save_file(before.gradients, gradients)
    state = TrainingState(weights=str(weights), optimizer_state=str(optimizer_state), steps=before.number)
    worker.ask(ApplyGradients(state=state, gradients=str(gradients), path=str(after)))
    saved = npz.load_file(after)
    return After(
        {key: saved[f"weight/{key}"] for key in before.weights},
        {
            key: [saved[f"state/{state_key(key, index)}"] for index in range(len(arrays))]
            for key, arrays in before.state.items()
        },
        {key: tuple(map(int, saved[f"axes/{key}"])) for key in before.weights if f"axes/{key}" in saved},
    )


def _judged(settings: Optimizer, key: str, before: Before, after: After) -> float:
    """Rho of one parameter's step."""
    given = before.weights[key], before.gradients[key], before.state[key]
    moved = after.weights[key], after.state[key]
    return judge(settings, *given, before.number + 1, *moved, axes=after.axes.get(key))[0]


def _following(settings: Optimizer, before: Before) -> tuple[Arrays, States]:
    """The weights and the state after a step by torch's formula, computed in float64."""
    weights: Arrays = {}
    states: States = {}
    for key, array in before.weights.items():
        w, g, *state = (each.astype(np.float64) for each in (array, before.gradients[key], *before.state[key]))
        new, values = update(settings, w, g, state, before.number + 1)
        weights[key] = new.astype(np.float32)
        states[key] = [value.astype(np.float32) for value in values]
    return weights, states
