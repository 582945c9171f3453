"""Probe weights and input cases: seeded, and such that faults show.

Fresh initialisations hide faults: a missing bias is invisible when biases are zero, a swapped scale when gammas are one.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from .keys import case_key
from .spec import BATCH, ModelSpec, TensorSpec

STATISTICS = ("running_mean", "running_var")


def weights(shapes: Mapping[str, tuple[int, ...]], seed: int) -> dict[str, np.ndarray]:
    """Float32 weights for these canonical names and shapes.

    Every name draws from a generator of its own, so one more layer changes no other. Matrices and kernels keep the size of
    activations (He et al. 2015: standard deviation √(2 / fan-in)); scales lie in [0.5, 1.5), shifts are N(0, 0.1²).
    """
    return {name: _weight(name, tuple(shape), _generator(seed, name)) for name, shape in shapes.items()}


def _weight(name: str, shape: tuple[int, ...], generator: np.random.Generator) -> np.ndarray:
    kind = name.rsplit(".", 1)[-1]
    if kind == "running_var" or (kind == "weight" and len(shape) == 1):
        return generator.random(shape, dtype=np.float32) + np.float32(0.5)
    if len(shape) < 2:
        return np.float32(0.1) * generator.standard_normal(shape, dtype=np.float32)
    fan_in = int(np.prod(shape[1:]))
    return np.float32(np.sqrt(2.0 / fan_in)) * generator.standard_normal(shape, dtype=np.float32)


def unsettle(weights: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Move calibrated batch-norm statistics off their exact values, and round them to 12 bits.

    A batch norm whose statistics are exactly those of its input hides a mixed-up mean or variance. The rounding lets two
    machines whose last bits differ arrive at the same weights, hence the same digest.
    """
    result = dict(weights)
    for name, array in weights.items():
        kind = name.rsplit(".", 1)[-1]
        if kind not in STATISTICS:
            continue
        noise = _generator(seed, name)
        if kind == "running_var":
            moved = array * noise.uniform(0.8, 1.25, array.shape)
        else:
            spread = np.sqrt(weights.get(name.removesuffix(kind) + "running_var", np.ones_like(array)))
            moved = array + 0.1 * spread * noise.standard_normal(array.shape)
        bits = moved.astype(np.float32).view(np.uint32)
        result[name] = ((bits + np.uint32(0x800)) & np.uint32(0xFFFFF000)).view(np.float32)
    return result


def inputs(spec: ModelSpec, batch: int, seed: int, cases: int) -> dict[str, np.ndarray]:
    """``{"case/name": array}`` for every case and input, in canonical layout."""
    return {
        case_key(case, name): _input(tensor, batch, _generator(seed, f"case {case}: {name}"))
        for case in range(cases)
        for name, tensor in spec.inputs.items()
    }


def _input(tensor: TensorSpec, batch: int, generator: np.random.Generator) -> np.ndarray:
    shape = tensor.sized(batch)
    if not tensor.dtype.startswith("float"):
        assert tensor.low is not None
        assert tensor.high is not None
        return generator.integers(int(tensor.low), int(tensor.high), shape).astype(tensor.dtype)
    if tensor.low is None or tensor.high is None:
        return generator.standard_normal(shape).astype(tensor.dtype)
    return generator.uniform(tensor.low, tensor.high, shape).astype(tensor.dtype)


def first_items(arrays: Mapping[str, np.ndarray], spec: ModelSpec, items: int) -> dict[str, np.ndarray]:
    """The same inputs with so many items of every batch; an input without a batch stays as it is."""
    shapes = {key: spec.inputs[key.split("/", 1)[1]].shape for key in arrays}
    few = {key: tuple(slice(items if size == BATCH else None) for size in shape) for key, shape in shapes.items()}
    return {key: np.ascontiguousarray(array[few[key]]) for key, array in arrays.items()}


def perturb(arrays: Mapping[str, np.ndarray], seed: int) -> dict[str, np.ndarray]:
    """Every float32 value moved to a neighbour, up or down at random: the least change that float32 can show."""
    result = {}
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            up = _generator(seed, name).integers(0, 2, array.shape).astype(bool)
            array = np.where(up, np.nextafter(array, np.float32(np.inf)), np.nextafter(array, np.float32(-np.inf)))
        result[name] = array
    return result


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])
