"""JAX: what its adapters share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Framework
from xverify.framework.capture import Recorder


class Jax(Framework):
    """An adapter but for the models: tensors, waiting, threads, compilation."""

    isolated = "jax"
    devices = ("cpu", "cuda")

    def __init__(self, threads: int, device: str) -> None:
        import jax

        try:
            self.place = jax.devices()[0]
        except RuntimeError as error:
            raise Unsupported(f"no {device} device: {error}") from None
        self.jax = jax
        self.threads = threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        # NPROC is how many cores XLA believes to have; it has no other setting for the size of its pool of threads.
        return {**super().variables(threads, device), "JAX_PLATFORMS": device, "NPROC": str(threads)}

    def device_memory(self) -> dict[str, float]:
        found = self.place.memory_stats() or {}
        names = {"peak_mib": "peak_bytes_in_use", "used_mib": "bytes_in_use", "total_mib": "bytes_limit"}
        return {name: found[key] / 2**20 for name, key in names.items() if key in found}

    def compiled(self, function: Callable[..., Any], weights: Any) -> Callable[..., Any]:
        """``function(weights, *inputs)`` under jit, with these. They are arguments: XLA would fold constants."""
        return partial(self.jax.jit(function), weights)

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        return call.func._cache_size() if isinstance(call, partial) else None  # type: ignore[attr-defined]

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        return self.jax.numpy.asarray(array)

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        return np.asarray(tensor)

    def wait(self, outputs: Any) -> None:
        """A call returns before its outputs are computed. All that runs belongs to some call's outputs, all waited for."""
        self.jax.block_until_ready(outputs)

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """As everywhere, but without compilation: a loop's body then runs once a turn, on numbers, where it is else traced."""
        with self.jax.disable_jit():
            return super().capture(model, inputs, names, recorder)
