"""Code that the adapters of JAX share: tensors, waiting, threads, compilation and training."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import Recorder, TrainingRecorder, recording
from xverify.framework.own_state import Slot
from xverify.framework.structures import leaves, without_classes
from xverify.framework.training import Batch, Training
from xverify.frameworks.jax.function import Around, Function, captured_step
from xverify.frameworks.jax.ranks import Devices
from xverify.frameworks.jax.training import Learner, cross_entropy, learner
from xverify.workload.operations import Operations
from xverify.workload.optimizers import Optimizer
from xverify.workload.ranks import OF_FILES


class Jax(Framework):
    """The base class of adapters whose tensors are JAX's. A subclass adds how a model is built and called."""

    isolated = "jax"
    shows_clipped = False
    own_variants: tuple[str, ...] = ("eps-inside", "corrected maximum", "clip eps")
    captured_mode = ""  # inner functions are not compiled during a capture
    devices = ("cpu", "cuda")
    decodes = True
    rank_modes = ("jit",)
    ranks_are_devices = True
    divided_by_compiler = True

    ranked: Devices | None = None  # the devices that train together

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
        # NPROC is the number of cores that XLA assumes; XLA has no other setting for the size of its thread pool.
        return {**super().variables(threads, device), "JAX_PLATFORMS": device, "NPROC": str(threads)}

    def device_memory(self) -> dict[str, float]:
        found = self.place.memory_stats() or {}
        names = {"peak_mib": "peak_bytes_in_use", "used_mib": "bytes_in_use", "total_mib": "bytes_limit"}
        return {name: found[key] / 2**20 for name, key in names.items() if key in found}

    def compiled(self, function: Callable[..., Any], weights: Any) -> Callable[..., Any]:
        """Compile ``function(weights, *inputs)`` and bind these weights.

        The weights are arguments of the compiled function, because XLA would fold constants. Dataclasses in its outputs become
        dictionaries, because JAX does not know them.
        """

        def known(*arguments: Any) -> Any:
            return without_classes(function(*arguments))

        return partial(self.jax.jit(known), weights)

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        owner = getattr(call, "__self__", None)  # of Learner.step
        if isinstance(owner, Learner):
            return owner.graphs()
        if not isinstance(call, partial):
            return None
        compiled: Any = call.func
        return int(compiled._cache_size())

    def join(
        self, rank: int, count: int, plan: str, meeting: str, seconds: float, shares: Sequence[float] = ()
    ) -> None:
        self.ranked = Devices(count, plan)
        self.place = self.jax.devices()[0]

    def parallelize(self, model: Any, plan: str, source: Source) -> list[str]:
        assert self.ranked is not None
        if plan in OF_FILES:
            self.ranked.by_file(model, source)
        else:
            function = self.pure(model)
            function.write(*([self.ranked.weight(each) for each in arrays] for arrays in function.present()))
        return []

    def to_native(self, array: Array, layout: str | None) -> Any:
        native = self.jax.numpy.asarray(array)
        return native if self.ranked is None else self.ranked.batch(native)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return np.asarray(tensor)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        from xverify.frameworks.jax.own_step import slots

        return slots(value)

    def watched_products(self) -> AbstractContextManager[dict[str, int]]:
        from xverify.frameworks.jax.products import watched_products

        return watched_products()

    def wait(self, outputs: Any) -> None:
        """A call returns before its outputs are computed. Every computation belongs to outputs, and all outputs are waited for."""
        self.jax.block_until_ready(leaves(outputs))  # JAX itself does not look into a dataclass

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Run without compilation, so that the body of a loop runs on values once per iteration instead of being traced once."""
        with self.jax.disable_jit():
            return super().capture(model, inputs, names, recorder)

    @contextmanager
    def float64_arithmetic(self) -> Iterator[None]:
        """Building a float64 model allows 64 bits in the whole process; without them, code in float32 computes as it does alone."""
        try:
            yield
        finally:
            self.jax.config.update("jax_enable_x64", False)

    def taken(self, tensor: Any, places: Sequence[int], axis: int) -> Any:
        return self.jax.numpy.take(tensor, np.array(places), axis)

    def pure(self, model: Any) -> Function:
        """The model as a pure function of its variables, in training mode."""
        raise Unsupported(f"the adapter of {self.name} does not support training")

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        wrap = self.jax.jit if mode == "jit" else None
        return learner(self.pure(model), self.fused_parameters(model), wrap, optimizer, match, self.loss)

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        return cross_entropy(logits, target)

    @cached_property
    def operations(self) -> Operations:
        from xverify.frameworks.jax.operations import JaxOperations

        return JaxOperations()

    def alias(self, tensor: Any) -> Any:
        """The tensor itself: ``captured_step`` tells the two apart in another way."""
        return tensor

    def capture_training(
        self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder
    ) -> tuple[Any, float, Mapping[str, Array]]:
        def record(listener: Any) -> Around:
            return lambda copy: recording(self._differentiated_layers(copy, names), self.layer_method, listener)

        with self.jax.disable_jit():
            return captured_step(self.pure(model), batch, record, recorder, self.loss)
