"""The state that the handlers of one worker share: the framework, the built model, and the conversion of arrays."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Failed, Unsupported
from ..framework.adapter import Framework
from ..framework.ranks import WeightsHeld
from ..framework.runner import Runner, Source
from ..framework.structures import is_tensor, named_outputs
from ..messages import InputSize, Json
from ..weights import arrangement_proposals as proposals
from ..weights import canonical, npz
from ..weights.arrangement import Arrangement
from ..weights.canonical import Array
from ..weights.channels import Channels
from ..weights.layout import Shape
from ..weights.names import rename_layers
from ..workload.keys import case_key
from ..workload.losses import Objective
from . import reasons
from .arranged import LABEL


@dataclass
class State:
    """The framework and the model of one process. ``Start`` sets ``runner``; ``Build`` sets everything about the model.

    clock: function that returns seconds.
    options: keyword arguments for the model's ``build``.
    names: the framework's table of names.toml.
    inputs, outputs, targets: name -> layout.
    scalars: the outputs that have no axes in the spec.
    objective: the loss that the model is trained with; None: the mean cross-entropy of its only output.
    arrangement, channels: the weights that the model stores otherwise than the reference, and the layers that have them.
    canonical_names: the framework's own name of a weight -> its canonical name. A weight of ``arrangement`` has the canonical name
        as its own.
    shapes: canonical name of a weight -> its shape.
    computed: canonical name of a weight that the model computes from others -> names of these others.
    call: the callable that is timed; ``Prepare`` or ``PrepareTraining`` makes it. blocking: whether it returns computed outputs.
    cases: the arguments of each input case.
    context: the context manager of every timed call.
    plan: by which several processes train the model; "" in a process that trains alone. held: what this one has of the weights.
    replay_models: see ``replayed_models``; their type is not named here, because its module imports torch.
    """

    clock: Callable[[], float]
    runner: Runner = field(init=False)
    source: Source = field(init=False)
    options: Json = field(init=False)
    names: dict[str, str] = field(init=False)
    inputs: dict[str, str | None] = field(init=False)
    outputs: dict[str, str | None] = field(init=False)
    targets: dict[str, str | None] = field(init=False)
    scalars: frozenset[str] = frozenset()
    objective: Objective | None = None
    arrangement: Arrangement = field(default_factory=Arrangement)
    channels: Channels = field(default_factory=Channels)
    model: Any = field(init=False)
    canonical_names: dict[str, str] = field(init=False)
    shapes: dict[str, tuple[int, ...]] = field(init=False)
    fused_parameters: dict[str, tuple[str, ...]] = field(init=False)
    call: Callable[..., Any] = field(init=False)
    blocking: bool = False
    computed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    cases: list[tuple[Any, ...]] = field(default_factory=list)
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    plan: str = ""
    held: WeightsHeld = field(default_factory=WeightsHeld)
    replay_models: dict[bool, Any] = field(default_factory=dict)

    @property
    def framework(self) -> Framework:
        """The adapter of a framework. Raises Failed where the process runs a model file."""
        if not isinstance(self.runner, Framework):
            raise Failed(f"{self.runner.name} opens model files, and does nothing that needs the code of a model")
        return self.runner

    @property
    def trained(self) -> Framework:
        """The adapter of a framework that trains. Raises Unsupported: one derived from another may not train as that does."""
        if not self.framework.trains:
            raise Unsupported(f"the adapter of {self.framework.name} does not support training")
        return self.framework

    def parallelize(self) -> tuple[str, ...]:
        """Prepare the model for training on several ranks, where there are any; see framework.ranks."""
        return tuple(self.framework.parallelize(self.model, self.plan, self.source)) if self.plan else ()

    def note_held(self) -> None:
        """Note what this rank has of the weights, before a step is given those of the reference."""
        if self.plan:
            found, names = self.framework.weights_held(self.model), self.canonical_names
            whole = {names[own]: digest for own, digest in found.whole.items()}
            self.held = WeightsHeld(whole, {names[own]: changed for own, changed in found.changed.items()})

    def read_weights(self, model: Any) -> Mapping[str, Array]:
        """The weights of a model, in canonical form; of some frameworks, each is read when it is looked up."""
        arrays, source = self.runner.weights_of(model), f"{self.runner.name}'s weights"
        named = self.named(arrays)
        self.arrangement.check_copies(named, arrays)
        found = canonical.Converted(named, source)
        return found if isinstance(arrays, canonical.Streamed) else dict(found)

    def canonical_arrays(self, own: Mapping[str, Array]) -> dict[str, Array]:
        """Arrays of weights, such as gradients, with canonical names. own: by the framework's own names."""
        return dict(self.named(own))

    def named(self, own: Mapping[str, Array]) -> Mapping[str, Array]:
        """The same, each read when it is looked up. Arrays that belong to no weight keep their names."""
        whole = self.arrangement.to_canonical(own)
        return canonical.Changed(whole, {self.canonical_names.get(name, name): name for name in whole})

    def layer_names(self) -> dict[str, str]:
        """The framework's own name -> canonical name of every layer; LABEL stands before a layer that is stored otherwise.

        What stands in the place of a batch norm that is folded into another layer, such as an identity, is left out.
        """
        names = rename_layers(self.framework.layers(self.model), self.names)
        kept = {own: name for own, name in names.items() if not self.channels.elsewhere(own, name)}
        return {own: LABEL + own if own in self.channels.own else name for own, name in kept.items()}

    def computed_by(self, own: str, name: str) -> set[str]:
        """The layers of the reference that a layer computes. own, name: as in ``layer_names``."""
        return self.channels.made_by(own) if own in self.channels.own else {name}

    def write_weights(self, model: Any, arrays: Mapping[str, Array], buffers: Collection[str] = ()) -> None:
        """Load canonical arrays into a model. Raises WeightsError when they do not fit it. buffers: see messages.Load."""
        arrays = canonical.normal_form(arrays, self.fused_parameters)
        canonical.check(
            arrays,
            self.shapes,
            source="the weights",
            table=self.source.table,
            advice=self._advice_on_axes,
            buffers=buffers,
            lines=self._lines_for_names,
        )
        self.load_own(model, self.arrangement.to_own(arrays, self._others))

    @property
    def _others(self) -> dict[str, str]:
        """Own name -> canonical name of the weights that are stored as in the reference."""
        return {own: name for own, name in self.canonical_names.items() if own not in self.arrangement.shapes}

    def load_own(self, model: Any, arrays: Mapping[str, Array]) -> None:
        """Load arrays with the framework's own names, which fit the model."""
        taken: Any = arrays if self.runner.streams_weights else dict(arrays)  # most adapters take a dictionary only
        self.runner.load_weights(model, taken)

    def _lines_for_names(self, extra: Mapping[str, Shape], missing: Mapping[str, Shape]) -> str:
        """Lines for names.toml with which the weights fit, as a clause; "" for none. extra, missing: canonical name -> shape."""
        own = {name: own for own, name in self._others.items()}
        mine = {own[name]: shape for name, shape in missing.items() if name in own}
        fitting = {each: (name, self.shapes[name]) for name, each in own.items() if name not in missing}
        return proposals.advice(extra, mine, self.source.table, fitting)

    def _advice_on_axes(self, name: str, shape: tuple[int, ...]) -> str:
        """What to declare about a weight that should have this shape. name: canonical."""
        own = next(own for own, canonical_name in self.canonical_names.items() if canonical_name == name)
        if own in self.arrangement.shapes:
            return ""
        return self.framework.advice_on_axes(self.model, own, shape)

    def native_cases(self, path: str, float64: bool = False) -> list[tuple[Any, ...]]:
        """The input cases of an array file, as the framework's own tensors. float64: whether to convert float32 to float64."""
        if not self.inputs:
            return [()]
        arrays = npz.load_file(Path(path))
        if float64:
            arrays = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
        count = len(arrays) // len(self.inputs)
        return [
            tuple(
                self.runner.to_input(name, arrays[case_key(case, name)], layout) for name, layout in self.inputs.items()
            )
            for case in range(count)
        ]

    def zeros(self, sizes: Mapping[str, InputSize], float64: bool) -> tuple[Any, ...]:
        """Zeros in place of the native inputs. float64: whether to convert float32 to float64."""
        arrays = {name: np.zeros(size.shape, size.dtype) for name, size in sizes.items()}
        if float64:
            arrays = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
        return tuple(self.runner.to_input(name, a, self.inputs[name]) for name, a in arrays.items())

    def fed(
        self, native: tuple[Any, ...], results: Mapping[str, Array], case: int, state: Mapping[str, str]
    ) -> tuple[Any, ...]:
        """The native inputs of a case, of which some are outputs of the case before.

        results: the outputs of the cases before. state: input -> output.
        """
        return tuple(
            self.runner.to_input(name, results[case_key(case - 1, state[name])], layout) if name in state else value
            for (name, layout), value in zip(self.inputs.items(), native)
        )

    def output_arrays(self, case: int, outputs: Any) -> dict[str, Array]:
        """The outputs of the model: "case/name" -> array in canonical layout; see ``structures.named_outputs``.

        Raises Failed for an output that is no tensor.
        """
        found = named_outputs(outputs, list(self.outputs))
        return {case_key(case, name): self._output(name, value) for name, value in found.items()}

    def _output(self, name: str, value: Any) -> Array:
        """One output as an array. What is no tensor by its attributes may be one of the adapter's own, such as a promise."""
        array = None
        if is_tensor(value) or not isinstance(value, (str, bytes, int, float, complex)):
            try:
                array = self.runner.to_numpy(value, self.outputs.get(name))
                array = np.asarray(array) if is_tensor(array) else array  # numpy has scalars that are no arrays
            except (AttributeError, TypeError, ValueError):
                if is_tensor(value):
                    raise
        if not isinstance(array, np.ndarray) or array.dtype.kind == "O":
            raise Failed(
                f"{self.source.title} returns a {type(value).__name__} as output {name!r}, and xverify compares "
                "tensors; return tensors, in tuples, lists, mappings, named tuples or dataclasses, and leave others out"
            )
        one = name in self.scalars and not self.runner.scalars and array.shape == (1,)
        return array.reshape(()) if one else array

    def plain_array(self, value: Any) -> Array | None:
        """A tensor as an array in the framework's own layout; None for any other value, and for a tensor without values."""
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            return None
        try:
            return self.runner.to_numpy(value, None)
        except (AttributeError, NotImplementedError, TypeError):
            return None

    def replayed_models(self, weights: str, seed: int, training: bool = False) -> Any:
        """The float64 model and the float32 model of a replay (replay.stepping.Models), made at the first call.

        training: whether they have the parameters that are trained. Otherwise a weight that the model computes from others is a
            parameter of its layer, which is then a plain one.
        """
        from ..float64 import parametrized as _torch_parametrized
        from ..float64 import stepping, tables

        folded = bool(self.computed) and not training
        if folded not in self.replay_models:
            stepping.return_freed_memory()
            build = partial(self.runner.build, self.source, self.options, float64=True)
            float64_model = build()
            float32_model = self.runner.build(self.source, self.options) if folded else self.model
            for model in (float64_model, float32_model, *([self.model] if folded else [])):
                self.write_weights(model, npz.OnDisk(Path(weights)))
            found = tables.perturbed_tables(float64_model, build, seed)
            if folded:
                for model in (float64_model, float32_model):
                    _torch_parametrized.fold(model)
                modules = dict(float64_model.named_modules())
                found = {(name, key): table for (name, key), table in found.items() if name in modules}
            made = stepping.Models(float64_model, float32_model, seed, found, tuple(self.outputs))
            self.replay_models[folded] = made
        return self.replay_models[folded]

    def float64_model(self) -> Any:
        """A model in float64, with any weights: that of the replay, where there is one with the parameters of the model file."""
        if False in self.replay_models:
            return self.replay_models[False].float64_model
        return self.runner.build(self.source, self.options, float64=True)

    def reason(self, error: BaseException) -> str:
        """What an error says, and the place in the user's code where it was raised, in one line."""
        return reasons.reason(error, self._folder)

    def place(self, error: BaseException) -> str:
        """The place in the user's code where an error was raised, as " (file:line)"; "" when it was raised elsewhere."""
        return reasons.place(error, self._folder)

    @property
    def _folder(self) -> Path | None:
        """The folder of the model; None before a model is built."""
        return self.source.folder if hasattr(self, "source") else None
