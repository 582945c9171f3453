"""Whether an optimizer made the right step, and which known alternative it made instead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from ..verdict.limits import UNIT
from ..workload.optimizers import VARIANTS, Optimizer, update

SAMPLE = 2**16  # values of a tensor on which the floor is measured
REPEATS = 4
EQUAL_RHO, DRIFT_RHO = 3.0, 10.0


def judge(
    settings: Optimizer,
    before: np.ndarray,
    gradient: np.ndarray,
    optimizer_state: Sequence[np.ndarray],
    step: int,
    after: np.ndarray,
    state_after: Sequence[np.ndarray],
    times: int = 1,
    gradient_noise: float = 0.0,
    seed: int = 0,
) -> tuple[float, str]:
    """(rho, of what): the change of a weight, and of its state, over what rounding explains; float32 arrays of one shape.

    The step is computed in float64 from the framework's own weight, gradient and state. The floor is measured: how far the
    result moves when all of these move by a unit of rounding, when lr, betas and the other constants are rounded to float32, and
    the powers of the betas too (1 - 0.999 keeps three digits less), and the rounding of the result itself. Both in rms, and by
    value: small gradients, where eps shows, weigh as much as large ones. step: counts from 1. times: how often the weight makes
    its step, where it is the sum of several. gradient_noise: rms by which the gradient of the step may differ from this one.
    """
    given = [array.astype(np.float64).ravel() for array in (before, gradient, *optimizer_state)]
    w, g, state = given[0], given[1], given[2:]
    exact_w, exact_slots = update(settings, w, g, state, step, np.sqrt)
    picked = np.random.default_rng(seed).integers(0, w.size, SAMPLE) if w.size > SAMPLE else np.arange(w.size)
    noise = np.random.default_rng(seed + 1)
    # A framework keeps its constants in float64, or in float32: no other values of theirs are right.
    constants: dict[str, Any] = {
        name: float(np.float32(v)) for name, v in asdict(settings).items() if isinstance(v, float)
    }
    rounded = replace(settings, **constants)
    moves: list[list[np.ndarray]] = [[] for _ in range(1 + len(exact_slots))]
    for _ in range(REPEATS):

        def moved(values: np.ndarray) -> np.ndarray:
            result: np.ndarray = values * (1 + UNIT * noise.uniform(-1, 1, values.shape))
            return result

        part = [moved(array[picked]) for array in given]
        part[1] += gradient_noise * math.sqrt(3) * noise.uniform(-1, 1, part[1].shape)
        # A power in float32 is off by a unit in the last place below one; the first too, where it comes from a logarithm.
        slips = noise.choice((-1.0, 1.0), 2) * UNIT
        power1, power2 = (beta**step + slip for beta, slip in zip((rounded.beta1, rounded.beta2), slips))
        new_w, new_slots = update(rounded, part[0], part[1], part[2:], step, np.sqrt, (power1, power2))
        # The weight itself is exact: what counts is how it changes.
        moves[0].append(times * ((new_w - part[0]) - (exact_w - w)[picked]))
        for kept, new, exact in zip(moves[1:], new_slots, exact_slots):
            kept.append(new - exact[picked])
    names = ("its change", *settings.state_names)
    exact_w = w + times * (exact_w - w)
    worst = (0.0, names[0])
    results = zip(names, (after, *state_after), (exact_w, *exact_slots), moves)
    for name, theirs, exact, floor in results:
        residual = theirs.astype(np.float64).ravel() - exact
        if not np.isfinite(residual).all():
            return math.inf, name
        squares = np.mean(np.square(floor), axis=0) + np.square(UNIT * exact[picked]) / 3
        whole = math.sqrt(float(np.mean(squares)))
        rho = math.sqrt(float(np.mean(np.square(residual)))) / whole if whole else math.inf * bool(residual.any())
        by_value = np.divide(np.square(residual[picked]), squares, out=np.zeros_like(squares), where=squares > 0)
        # A share of the floor by value is luck: four repeats make it far too small now and then. Its median is not.
        typical = math.sqrt(float(np.median(by_value)) / MEDIAN) if by_value.size else 0.0
        worst = max(worst, (max(rho, typical), name))
    return worst


MEDIAN = 0.25  # of the square of an honest residual over its floor


def alternatives(settings: Optimizer) -> list[tuple[str, str, Optimizer]]:
    """(kind, clause, settings): what a wrong port computes instead. The first that explains a step is named."""
    o = settings
    found: list[tuple[str, str, Optimizer]] = []

    def add(kind: str, says: str, **changes: Any) -> None:
        found.append((kind, says, replace(o, **changes)))

    add("torch's form", "is torch's own form", variants=())
    for form, says in VARIANTS.items():
        if form not in o.variants and (form != "eps-hat" or o.name in ("adam", "adamw")):
            if (form == "eps-inside" and o.name != "rmsprop") or (form == "decoupled" and not o.weight_decay):
                continue
            add(form, f"{form}: {says}", variants=(*o.variants, form))
    if o.weight_decay:
        add("weight decay missing", f"weight decay {o.weight_decay:g} is missing", weight_decay=0.0)
        if o.name == "adamw":
            add("coupled", "weight decay is added to the gradient, as Adam's: AdamW shrinks the weight", name="adam")
    if o.name == "sgd" and o.momentum:
        add("nesterov", f"behaves {'without' if o.nesterov else 'with'} Nesterov momentum", nesterov=not o.nesterov)
        add("momentum missing", f"momentum {o.momentum:g} is missing", momentum=0.0, nesterov=False)
    if o.name != "sgd":
        for eps in (1e-10, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3):
            if eps != o.eps:
                add("eps", f"behaves as eps={eps:g}; it should be {o.eps:g}", eps=eps)
    if o.name in ("adam", "adamw"):
        for beta in (0.9, 0.95, 0.98, 0.99, 0.9999):
            if beta != o.beta2:
                add("beta2", f"behaves as beta2={beta:g}; it should be {o.beta2:g}", beta2=beta)
        for beta in (0.0, 0.5, 0.8, 0.95, 0.99):
            if beta != o.beta1:
                add("beta1", f"behaves as beta1={beta:g}; it should be {o.beta1:g}", beta1=beta)
    if o.name == "rmsprop":
        for alpha in (0.9, 0.95, 0.999):
            add("alpha", f"behaves as alpha={alpha:g}; it should be {o.alpha:g}", alpha=alpha)
    return found
