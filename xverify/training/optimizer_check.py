"""Judge whether an optimizer made the right step, and list known wrong steps. Pure functions over arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from ..verdict.limits import UNIT, growth
from ..verdict.local import local
from ..weights.canonical import Array
from ..workload.adafactor import OTHER_AXES, Factored, last_two, refactored
from ..workload.operations import Operations, of_numpy
from ..workload.optimizer_mistakes import VALUES
from ..workload.optimizers import VARIANTS, Optimizer, lion_mix, update
from .compared import rms, share_of

SAMPLE = 2**16  # values of a tensor on which its noise floor is measured
REPEATS = 4  # number of noisy steps over which the noise floor is averaged
FEW, REPEATS_OF_FEW = (
    16,
    32,
)  # an array with fewer values than this, and its noisy steps: four would leave its noise floor to chance
MEDIAN = 0.25  # median of the squared residual / squared noise floor of one value, in clean steps


class Judged(NamedTuple):
    """What ``judge`` finds.

    rho: residual / noise floor of the worst array. what: its name.
    share: noise floor / size of the change of the weight, in the median group of its values.
    """

    rho: float
    what: str
    share: float = 0.0


class Alternative(NamedTuple):
    """A step that a wrong port may compute instead of the right one.

    says: one clause for the report. settings: an optimizer that computes the same.
    """

    says: str
    settings: Optimizer


def judge(
    settings: Optimizer,
    before: Array,
    gradient: Array,
    optimizer_state: Sequence[Array],
    step: int,
    after: Array,
    state_after: Sequence[Array],
    times: int = 1,
    gradient_noise: float | Array = 0.0,
    seed: int = 0,
    axes: Factored | None = None,
) -> Judged:
    """Compare the step of one weight with the exact step.

    rho is residual / noise floor, of the change of the weight and of each array of its state; the largest of them is returned. It
    is computed as an rms, and also as a median over values, so that small gradients, for which eps matters, count as much as large
    ones. The exact step is computed in float64 from the framework's own weight, gradient and state. All arrays are float32 and have
    the same shape, which only adafactor looks at.

    settings: the optimizer that should have made the step.
    before, gradient, optimizer_state: the weight, its gradient and its state before the step.
    step: number of the step, from 1.
    after, state_after: the weight and its state after the step.
    times: number of equal steps that the weight makes at once, because it is the sum of this number of parameters.
    gradient_noise: rms by which each value of the gradient that was used may differ from ``gradient``; values of which that is not
        known are left out.
    seed: of the random noise.
    axes: of the weight that the framework's own adafactor takes; None: torch's. Only settings with the variant for it use them.
    """
    w, g, *state = (array.astype(np.float64) for array in (before, gradient, *optimizer_state))
    if settings.name == "adafactor":
        axes = axes if OTHER_AXES in settings.variants else None
        state = state if axes is None else refactored(state, axes)
    spread = np.broadcast_to(np.asarray(gradient_noise, np.float64), g.shape)
    picked = np.random.default_rng(seed).integers(0, w.size, SAMPLE) if w.size > SAMPLE else np.arange(w.size)
    counts = _own_values(settings, before.shape, axes)
    exact_w, exact_state = update(settings, w, g, state, step, axes=axes)
    # The weight before the step is exact, so its change is what counts.
    exact = [each.ravel() for each in (exact_w - w, *exact_state)]
    steps = _noisy_steps(settings, [w, g, *state], step, spread, seed + 1, axes, min(counts), picked)
    errors = [np.stack(of_array) - right[picked] for of_array, right in zip(zip(*steps), exact)]
    decided = _decided(settings, g.ravel(), [each.ravel() for each in state], spread.ravel())
    errors[0] = np.where(decided[picked], times * errors[0], 0.0)
    exact[0] = w.ravel() + times * exact[0]
    names = ("its change", *settings.state_names)
    residuals = [theirs.astype(np.float64).ravel() - right for theirs, right in zip((after, *state_after), exact)]
    for name, residual in zip(names, residuals):
        if not np.isfinite(residual).all():
            return Judged(math.inf, name)
    residuals[0] = np.where(decided, residuals[0], 0.0)
    # The result itself is rounded, too.
    floors = [
        np.mean(np.square(each), axis=0) + np.square(UNIT * right[picked]) / 3 for each, right in zip(errors, exact)
    ]
    change = (exact[0] - w.ravel())[picked]
    still = (change == 0) & (np.abs(errors[0]).max(axis=0) == 0)
    floors[0][still] = 0.0  # such as the rows of an embedding that a batch does not use: nothing is rounded
    arrays = [each for each in zip(names, residuals, floors, counts) if np.isfinite(each[2]).any()]
    rhos = [(_rho(residual, picked, floor, count), name) for name, residual, floor, count in arrays]
    return Judged(*max([(0.0, names[0]), *rhos]), _share(change, floors[0]))


def _share(change: Array, floor: Array) -> float:
    """Noise floor / size in the median group of the changes of a weight. floor: mean square of the noise of each."""
    noise = np.sqrt(floor)
    groups = local(change, np.zeros_like(change), noise, certain=True)
    if groups.determined < groups.undetermined:
        return math.inf
    return groups.floor_share or share_of(rms(noise), rms(change))


def _own_values(settings: Optimizer, shape: Sequence[int], axes: Factored | None) -> list[int]:
    """The number of values of the change of a weight and of each array of its state that do not repeat another one.

    A row or column of adafactor has the shape of the weight, and the same value along one axis.
    """
    size = math.prod(shape)
    found = [size] * (1 + len(settings.state_names))
    if settings.name == "adafactor":
        taken = last_two(len(shape)) if axes is None else axes
        for name, axis in zip(("column", "row"), taken):
            found[1 + settings.state_names.index(name)] = size // shape[axis]
    return found


def _decided(settings: Optimizer, g: Array, state: Sequence[Array], gradient_noise: Array) -> Array:
    """For each value, whether rounding cannot change the direction of its step. Only lion takes the sign of a sum."""
    if settings.name != "lion":
        return np.ones(g.shape, bool)
    rounding = 4 * UNIT * lion_mix(settings, np.abs(state[0]), np.abs(g))
    noise = 2 * (1 - settings.beta1) * gradient_noise
    mixed = np.abs(lion_mix(settings, state[0], g))
    return np.asarray(mixed >= rounding + noise)


def _noisy_steps(
    settings: Optimizer,
    given: Sequence[Array],
    step: int,
    gradient_noise: Array,
    seed: int,
    axes: Factored | None,
    fewest: int,
    picked: Array,
) -> Iterator[list[Array]]:
    """The step, perturbed by as much as float32 may round: the picked values of [change of the weight, *state], several times.

    given: weight, gradient and state, float64. axes: see ``judge``. fewest: number of values of the smallest array.
    """
    noise = np.random.default_rng(seed)
    whole = settings.name == "adafactor"  # its step of one value depends on the others
    if not whole:
        given, gradient_noise = [array.ravel()[picked] for array in given], gradient_noise.ravel()[picked]
    # A framework keeps its constants in float64, or rounded to float32. Any other value of a constant is wrong.
    constants = {name: float(np.float32(v)) for name, v in asdict(settings).items() if isinstance(v, float)}
    rounded = replace(settings, **constants)  # type: ignore[arg-type]  # they are the fields that are floats
    ops = _NoisyOperations(noise) if whole else of_numpy()
    for _ in range(REPEATS if fewest >= FEW else REPEATS_OF_FEW):
        w, g, *state = (array * (1 + UNIT * noise.uniform(-1, 1, array.shape)) for array in given)
        g += gradient_noise * math.sqrt(3) * noise.uniform(-1, 1, g.shape)
        # A power of a beta in float32 is off by one unit roundoff; also the first power, where it is computed by a logarithm.
        offsets = noise.choice((-1.0, 1.0), 2) * UNIT
        power1, power2 = (beta**step + offset for beta, offset in zip((rounded.beta1, rounded.beta2), offsets))
        new_w, new_state = update(rounded, w, g, state, step, ops, powers=(power1, power2), axes=axes)
        made = [new_w - w, *new_state]
        yield [array.ravel()[picked] for array in made] if whole else made


class _NoisyOperations(Operations):
    """numpy's operations, of which the roots and the means are rounded as in float32."""

    def __init__(self, noise: np.random.Generator) -> None:
        super().__init__(np)
        self.noise = noise

    def sqrt(self, x: Array) -> Array:
        """The root with the rounding of what is computed with it: where a gradient is divided by its own size, that of the
        gradient itself cancels."""
        return np.asarray(np.sqrt(x) * (1 + 2 * UNIT * self.noise.uniform(-1, 1, x.shape)))

    def mean(self, x: Array, axis: int | None) -> Array:
        """The mean with the rounding of its sum. Where there are few values, small draws would make no floor."""
        exact = np.asarray(x.mean(axis, keepdims=True))
        few = exact.size < FEW
        draws = self.noise.choice((-1.0, 1.0), exact.shape) if few else self.noise.uniform(-1, 1, exact.shape)
        return np.asarray(exact * (1 + growth(x.size // exact.size) * UNIT * draws))


def _rho(residual: Array, picked: Array, floor: Array, count: int) -> float:
    """Residual / noise floor, in rms or as a median over values, whichever is larger. A median of FEW values says nothing.

    residual: of all values. floor: mean square of the noise of each picked value; values where it is not finite are left out, and
    where there are such, the others that were not picked, too.
    count: number of values that do not repeat another one.
    """
    known = np.isfinite(floor)
    sampled, floor = residual[picked][known], floor[known]
    residual = residual if known.all() else sampled
    whole = math.sqrt(float(np.mean(floor)))
    rho = math.sqrt(float(np.mean(np.square(residual)))) / whole if whole else math.inf if residual.any() else 0.0
    if count < FEW:
        return rho
    by_value = np.divide(np.square(sampled), floor, out=np.zeros_like(floor), where=floor > 0)
    # The noise floor of a single value is a mean of four repeats, which is sometimes much too small. The median is not.
    typical = math.sqrt(float(np.median(by_value)) / MEDIAN) if by_value.size else 0.0
    return max(rho, typical)


def alternatives(settings: Optimizer) -> list[Alternative]:
    """The known wrong steps for these settings, in the order in which they are tried."""
    o = settings
    found: list[Alternative] = []

    def add(says: str, **changes: Any) -> None:  # Any: the fields of settings have several types
        found.append(Alternative(says, replace(o, **changes)))

    add("is torch's own formula", variants=())
    for variant, says in VARIANTS.items():
        if variant not in o.variants and _has_variant(o, variant):
            add(f"{variant}: {says}", variants=(*o.variants, variant))
    if o.weight_decay:
        add(f"weight decay {o.weight_decay:g} is missing", weight_decay=0.0)
        if o.name == "adamw":
            add("weight decay is added to the gradient, as in Adam: AdamW shrinks the weight", name="adam")
    if o.name == "sgd" and o.momentum:
        add(f"behaves {'without' if o.nesterov else 'with'} Nesterov momentum", nesterov=not o.nesterov)
        add(f"momentum {o.momentum:g} is missing", momentum=0.0, nesterov=False)
    if o.recipe.amsgrad:
        add("AMSGrad is missing", recipe=replace(o.recipe, amsgrad=False))
    constants: dict[str, tuple[float, ...]] = {}
    if o.name == "adafactor":
        constants["eps"] = (1e-15, 1e-8, 1e-6, 1e-3)
        constants |= {"eps2": (1e-8, 1e-4, 1e-2), "threshold": (0.5, 2.0), "beta2_decay": (-0.5, -0.7, -0.9, -1.0)}
    settings_of = {"adam": ("eps", "beta2", "beta1"), "lion": ("beta2", "beta1"), "rmsprop": ("eps", "alpha")}
    constants |= {name: VALUES[name] for name in settings_of.get(o.name.removesuffix("w"), ())}
    for name, values in constants.items():
        right: float = getattr(o, name)
        for value in values:
            if value != right:
                add(f"behaves as {name}={value:g}; it should be {right:g}", **{name: value})
    return found


def _has_variant(settings: Optimizer, variant: str) -> bool:
    """Whether a formula variant changes anything for these settings."""
    return {
        "eps-hat": settings.name in ("adam", "adamw"),
        "eps-inside": settings.name in ("rmsprop", "adagrad"),
        "decoupled": bool(settings.weight_decay),
        "corrected maximum": settings.recipe.amsgrad,
        "eps-added": settings.name == "adafactor",
        OTHER_AXES: False,  # it has no meaning without the axes
        "decayed scale": settings.name == "adafactor" and bool(settings.weight_decay),
        "unlimited rate": settings.name == "adafactor",
    }[variant]
