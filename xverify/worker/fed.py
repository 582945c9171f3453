"""State that a model returns and is given again: the inputs of one call that are outputs of the call before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import Failed
from ..framework.modelfile import FLOATS, ModelFile, Tensor
from ..weights.canonical import Array
from ..workload import probe


def feed(
    form: ModelFile,
    tensors: Sequence[Tensor],
    native: Sequence[Any],
    outputs: Mapping[str, Any],
    state: Mapping[str, str],
    perturb: int | None,
) -> tuple[Any, ...]:
    """The native inputs of a call, with its state from the call before. Raises Failed for a state that does not fit.

    tensors: the inputs of the signature. native: the inputs as the array file has them. outputs: of the call before, native.
    state: input -> output. perturb: seed of the perturbation of the state; None: it stays as it is.
    """
    given = []
    for tensor, value in zip(tensors, native):
        if tensor.name not in state:
            given.append(value)
            continue
        name = state[tensor.name]
        if name not in outputs:
            raise Failed(f"--state {name}={tensor.name}: the outputs are {', '.join(outputs)}")
        array = np.array(form.to_numpy(outputs[name], None))  # a copy: a model may overwrite what it is given
        check(f"--state {name}={tensor.name}", array, tensor)
        if perturb is not None and array.dtype.kind == "f":
            array = probe.perturb({name: array.astype(np.float32)}, perturb)[name].astype(array.dtype)
        given.append(
            form.to_native(array, None) if tensor.dtype == "float64" else form.to_input(tensor.name, array, None)
        )
    return tuple(given)


def check(what: str, array: Array, tensor: Tensor) -> None:
    """Raise Failed when an output cannot be the input of the next call. what: the beginning of the message."""
    wanted = tensor.shape if tensor.shape is not None else array.shape
    fits = len(wanted) == array.ndim and all(
        not isinstance(size, int) or size == own for size, own in zip(wanted, array.shape)
    )
    kinds = ("float" if dtype in FLOATS else dtype for dtype in (tensor.dtype, array.dtype.name))
    if fits and len(set(kinds)) == 1:
        return
    shown = "x".join(str(size or "?") for size in wanted) or "a scalar"
    own = "x".join(map(str, array.shape)) or "a scalar"
    raise Failed(f"{what}: the output is {array.dtype.name} {own}, and the input takes {tensor.dtype} {shown}")
