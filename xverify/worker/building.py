"""The work of a worker before timing: importing the framework, building the model, loading and reading weights."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from .. import messages
from ..errors import NotInstalled, WeightsError
from ..framework import formats
from ..framework.adapter import Framework, Setup, Source
from ..framework.objective import loss_function
from ..messages import Build, Built, DeviceMemoryRead, Start, Started
from ..weights import canonical, npz
from ..weights.arrangement import Arrangement, arrange
from ..weights.canonical import Array
from ..weights.channels import Channels, channels
from ..weights.names import rename, rename_all
from ..weights.proposals import Undeclared, with_proposal
from ..workload.losses import TARGET
from .handlers import Group

Shapes = dict[str, tuple[int, ...]]  # name of a weight -> shape
Parts = dict[str, tuple[str, ...]]  # name of a weight -> names of others


@contextmanager
def without_collections() -> Iterator[None]:
    """Collect no garbage. An import makes almost none, and looking for it takes an eighth of the import of torch."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Building(Group):
    """Handlers of requests about the process and its model."""

    def start(self, request: Start) -> Started:
        """Import the framework. Raises NotInstalled when it is absent."""
        state, adapter = self.state, formats.load_adapter(request.framework)
        begun = state.clock()
        try:
            with without_collections():
                state.runner = adapter(request.threads, request.device)
        except ModuleNotFoundError as error:
            if error.name in adapter.needs.values():
                raise NotInstalled(f"{error.name} is not installed in {sys.executable}") from None
            raise
        state.context = state.runner.inference
        return Started(state.clock() - begun, state.runner.environment(), state.runner.computes_in())

    def build(self, request: Build) -> Built:
        """Build the model, and store the names and shapes of its weights."""
        state = self.state
        state.source = Source(
            Path(request.folder),
            Path(request.onnx) if request.onnx else None,
            request.file or state.runner.reads(),
            request.table or state.runner.reads(),
            request.function,
            request.project,
        )
        state.options = {**request.options, **state.runner.mode_options.get(request.mode or "", {})}
        state.names, state.inputs, state.outputs = request.names, request.inputs, request.outputs
        state.scalars, state.objective = frozenset(request.scalars), request.objective
        state.targets = {TARGET: None} if request.objective is None else request.objective.targets
        state.replay_models, is_file = {}, not isinstance(state.runner, Framework)
        if not is_file:
            state.framework.set_up(self._setup(request))
        begun = state.clock()
        state.model = state.runner.build(state.source, state.options)
        seconds = state.clock() - begun
        if is_file or request.own_weights:
            state.canonical_names, state.shapes, state.fused_parameters = {}, {}, {}
            state.arrangement, state.channels = Arrangement(), Channels()
            return Built(seconds, {}, {}, {}, ())
        return Built(seconds, *self._weights(request))

    def _weights(self, request: Build) -> tuple[Shapes, Parts, Parts, tuple[str, ...], tuple[str, ...]]:
        """The shapes of the weights, those that are sums or computed, the buffers, and those stored otherwise; see ``Built``."""
        state, framework, model = self.state, self.state.framework, self.state.model
        try:
            own = framework.weights_of(model)
        except Undeclared as error:
            raise with_proposal(error, request.expected, state.names) from None
        self._arrange(request, own)
        plain = {name: own for name in own if name not in state.arrangement.moves}
        layers = list(framework.layers(model)) if state.names else []
        state.canonical_names = rename(plain, state.names, [*layers, *state.arrangement.moves])
        self._check_names()
        state.canonical_names |= {name: name for name in state.arrangement.shapes}
        whole = state.arrangement.to_canonical(own)
        state.shapes = {state.canonical_names[name]: canonical.shape_of(whole, name) for name in whole}
        state.fused_parameters = {
            state.canonical_names[total]: tuple(rename_all(parts, state.names).values())
            for total, parts in framework.fused_parameters(model).items()
        }
        state.computed = {
            rename_all([name], state.names)[name]: tuple(state.canonical_names[part] for part in parts if part in plain)
            for name, parts in framework.computed_weights(model).items()
        }
        buffers = tuple(state.canonical_names[name] for name in framework.own_buffers(model) if name in plain)
        return state.shapes, state.fused_parameters, state.computed, buffers, state.arrangement.moved

    def _check_names(self) -> None:
        """Raise WeightsError where a weight that is stored otherwise is also one that is stored as in the reference."""
        arrangement = self.state.arrangement
        for other, name in self.state.canonical_names.items():
            if name in arrangement.shapes:
                raise WeightsError(
                    f"{self._table} {name} is in {' and '.join(arrangement.homes(name))}, and {other} of the model has its name: "
                    "write copy = true in the line of a weight that the model has twice, or name the other weight of the reference"
                )

    @property
    def _table(self) -> str:
        return f"names.toml: [{self.state.source.table}.stored]"

    def _arrange(self, request: Build, own: Mapping[str, Array]) -> None:
        """Find the weights that the model stores otherwise. own: its weights."""
        state = self.state
        shapes = {name: canonical.shape_of(own, name) for name in own} if request.stored else {}
        state.arrangement = arrange(request.stored, shapes, request.expected, self._table)
        state.channels = channels(state.arrangement)
        for total in state.framework.fused_parameters(state.model) if request.stored else ():
            if total in state.arrangement.moves:
                raise WeightsError(
                    f"{self._table} {total} is a sum of torch's weights: it cannot be stored otherwise, too"
                )

    def _setup(self, request: Build) -> Setup:
        """What the request asks the framework for."""
        state, objective = self.state, request.objective
        loss = None
        if objective is not None and not objective.step:
            loss = loss_function(state.framework, state.source, objective, request.outputs)
        return Setup(
            loss,
            request.precision,
            zeros=partial(state.zeros, request.sizes) if request.sizes else None,
            inputs=tuple(request.inputs),
            cache=request.cache,
            disk=Path(request.disk) if request.disk else None,
        )

    def load(self, request: messages.Load) -> str:
        """Load weights. The reply has the digest of the weights that are read back out of the model."""
        # The arrays are mapped. Arrays in allocated memory would leave it free for the timed calls, which a plain script's lack.
        self.state.write_weights(self.state.model, npz.OnDisk(Path(request.path)), request.buffers)
        return self.digest(messages.Digest({}))

    def digest(self, request: messages.Digest) -> str:
        """The digest of the weights that the model has now."""
        arrays = self.state.read_weights(self.state.model)
        return canonical.digest(canonical.normal_form(arrays, request.fused_parameters))

    def save(self, request: messages.Save) -> None:
        """Write the weights to an array file."""
        npz.save_file(self.state.read_weights(self.state.model), Path(request.path))

    def device_memory(self, request: messages.DeviceMemory) -> DeviceMemoryRead:
        """The memory of the device, as the framework reports it."""
        return DeviceMemoryRead(**self.state.runner.device_memory())

    def release_memory(self, request: messages.ReleaseMemory) -> None:
        """Give free memory back to the system. After a training step it is more than half of the process's memory."""
        gc.collect()
        self.state.runner.release_memory()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)
