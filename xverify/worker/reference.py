"""The work of a reference's worker, and the planting of faults for a mutation. Replays need torch."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Failed
from ..framework.adapter import Activations
from ..framework.capture import returned_key
from ..messages import reference as messages
from ..messages.reference import (
    Fault,
    FloorsMeasured,
    InputsReach,
    ParametersRead,
)
from ..verdict.findings import ReplayReport
from ..verdict.local import output_noise
from ..verdict.matching import Place
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .handlers import Group
from .soundness import between
from .state import State

CALIBRATION_BATCH = 8  # least number of items: a variance of one or two values is too inaccurate


class ReferenceWork(Group):
    """Handlers of requests to a reference.

    planted: the layer of torch that has a fault now; None when there is none.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.planted: Any = None

    def read_parameters(self, request: messages.ReadParameters) -> ParametersRead:
        """Read the names of what the model takes."""
        model = self.state.model
        function = getattr(model, self.state.framework.layer_method, model)
        needed, optional, others = list[str](), list[str](), False
        for each in inspect.signature(function).parameters.values():
            others = others or each.kind is each.VAR_POSITIONAL
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
                (needed if each.default is each.empty else optional).append(each.name)
        return ParametersRead(tuple(needed), tuple(optional), others)

    def name_tensors(self, request: messages.NameTensors) -> None:
        """Name the inputs and outputs of later requests."""
        self.state.inputs, self.state.outputs = request.inputs, request.outputs

    def calibrate(self, request: messages.Calibrate) -> None:
        """Set batch-norm statistics to those of the first cases together, which have at least CALIBRATION_BATCH items.

        Cases without a batch axis cannot be joined.
        """
        state, batch = self.state, request.batch
        arrays = npz.load_file(Path(request.path))
        cases = range(min(len(arrays) // len(state.inputs), -(-CALIBRATION_BATCH // batch)) if batch else 1)
        native = []
        for name, layout in state.inputs.items():
            parts = [arrays[case_key(case, name)] for case in cases]
            batched = batch and len(parts[0].shape) > 0 and parts[0].shape[0] == batch
            native.append(state.runner.to_native(np.concatenate(parts) if batched else parts[0], layout))
        state.framework.calibrate(state.model, tuple(native))

    def size_activations(self, request: messages.SizeActivations) -> Activations:
        """Tell the sizes of the activations of a pass."""
        inputs = self.state.native_cases(request.inputs)[0]
        return self.state.framework.activations(self.state.model, inputs, request.training)

    def compute_weights(self, request: messages.ComputeWeights) -> None:
        """Write the weights that the model computes from others."""
        from ..float64.parametrized import computed

        state = self.state
        model = state.framework.build(state.source, state.options, float64=True)
        state.write_weights(model, npz.OnDisk(Path(request.weights)))
        values = [each.value().detach().numpy() for each in computed(model)]
        arrays = {name: np.asarray(value, np.float32, order="C") for name, value in zip(state.computed, values)}
        npz.save_file(arrays, Path(request.path))

    def export(self, request: messages.Export) -> str:
        """Write the model as ONNX."""
        state = self.state
        names, inputs = (list(state.inputs), list(state.outputs)), state.native_cases(request.inputs)[0]
        if request.decoder:
            return state.framework.export_decoder(state.model, inputs, names, Path(request.path), request.weights)
        return state.framework.export_onnx(
            state.model, inputs, names, Path(request.path), request.weights, request.axes
        )

    def find_unused(self, request: messages.FindUnused) -> tuple[str, ...]:
        """Change the weights, all together and then each by itself, and compare the outputs to the last bit."""
        state, inputs = self.state, self.state.native_cases(request.inputs)[0]
        own = {canonical: name for name, canonical in state.canonical_names.items()}
        weights = state.framework.weights_of(state.model)
        arrays = {own[name]: np.array(weights[own[name]]) for name in request.names}

        def outputs(*changed: str) -> dict[str, Array]:
            wrong = {own[name]: 1.5 - 3.0 * arrays[own[name]] for name in changed}
            state.framework.load_weights(state.model, {**arrays, **wrong})
            with state.runner.inference():
                returned = state.runner.modes[next(iter(state.runner.modes))](state.framework, state.model, inputs)
                found = state.output_arrays(0, returned(*inputs))
            return {key: np.array(array) for key, array in found.items()}  # an output may be a weight itself

        def same(*changed: str) -> bool:
            found = outputs(*changed)
            return all(
                np.array_equal(array, found[key], equal_nan=array.dtype.kind == "f") for key, array in right.items()
            )

        right = outputs()
        if same(*request.names):
            return request.names
        return tuple(name for name in request.names if same(name))

    def evaluate(self, request: messages.Evaluate) -> dict[str, tuple[int, ...]]:
        """Compute the outputs of every case in the framework's first mode."""
        model = self.state.float64_model() if request.float64 else self.state.model
        self.state.write_weights(model, npz.OnDisk(Path(request.weights)))
        try:
            results = self._results(model, request)
        finally:
            if request.restore:
                self.state.write_weights(model, npz.OnDisk(Path(request.restore)))
        npz.save_file(results, Path(request.path))
        return {name: array.shape for name, array in results.items()}

    def _results(self, model: Any, request: messages.Evaluate) -> dict[str, Array]:
        state, framework = self.state, self.state.framework
        cases = state.native_cases(request.inputs, request.float64)
        results: dict[str, Array] = {}
        with framework.float64_arithmetic() if request.float64 else framework.inference():
            mode = next(iter(framework.modes))
            call = framework.modes[mode](framework, model, cases[0])
            for case, native in enumerate(cases):
                outputs = call(*(state.fed(native, results, case, request.state) if case else native))
                framework.wait(outputs)
                results.update(state.output_arrays(case, outputs))
        if request.restore:  # an output may share the memory of a weight
            return {name: np.array(array) for name, array in results.items()}
        return results

    def watch_inputs(self, request: messages.WatchInputs) -> InputsReach:
        """Compute every case, and watch what the values reach."""
        from ..float64.reached import Reached

        state, model = self.state, self.state.model
        if request.weights:
            state.write_weights(model, npz.OnDisk(Path(request.weights)))
        with state.framework.inference(), Reached(model) as watch:
            for native in state.native_cases(request.inputs):
                watch.given(list(state.inputs), native)
                model(*native)
        return InputsReach(watch.says(), watch.padding)

    # -- layers -------------------------------------------------------------------------------------------------------

    def list_layers(self, request: messages.ListLayers) -> tuple[str, ...]:
        """The layers that a replay compares, in the order of their definition."""
        from ..float64.layer_kinds import leaves

        return tuple(leaves(self.state.model))

    def layer_order(self, request: messages.LayerOrder) -> tuple[Place, ...]:
        """The layers as they are first called on the first case."""
        from ..float64 import stepping

        models = self.state.replayed_models(request.weights, request.seed)
        found = stepping.order(models, self.state.native_cases(request.inputs)[0])
        return tuple(Place(name, type(models.layers[name]).__name__, *shapes) for name, shapes in found.items())

    def noise_floors(self, request: messages.NoiseFloors) -> FloorsMeasured:
        """Compute the outputs of the cases in float64, with the noise of their values, and the coverage (see coverage.Coverage)."""
        from ..float64 import perturbed_passes
        from ..replay import consistency, forward
        from ..replay.coverage import Coverage
        from ..replay.tensors import Capture

        models = self.state.replayed_models(request.weights, request.seed)
        results, noises, inconsistent, growth = {}, {}, "", ""
        coverage, fed = Coverage(models), forward.NOT_FED
        for case, native in enumerate(self.state.native_cases(request.inputs)):
            if request.cases and case not in request.cases:
                continue
            replay = forward.Replay(models, Capture())
            replay.run(native, None if case or request.cases else coverage.visit, fed)
            if not inconsistent:
                inconsistent = _inconsistent(consistency.inconsistency(replay, list(self.state.outputs), fed))
            growth = growth or _grows(consistency.growth(replay, fed))
            if request.state:
                fed = self._fed(replay, request.state)
            more = [perturbed_passes.perturbed_outputs(models, native, index) for index in range(1, request.samples)]
            if not all(tensor.is_floating_point() for tensor in replay.returned[0]):
                more += perturbed_passes.decisions(models, native)
            for name, *passes in zip(self.state.outputs, *replay.returned, *more):
                exact, perturbed, float32, *others = (tensor.detach().numpy() for tensor in passes)
                key = case_key(case, name)
                results[key], noises[key] = exact, output_noise(exact, [perturbed, *others], float32)
        if inconsistent and models.settles:  # float32 may fall short of a whole number
            models.settles = False
            return self.noise_floors(request)
        npz.save_file(results, Path(request.path))
        npz.save_file(noises, Path(request.noise))
        return FloorsMeasured(tuple(coverage.untested), tuple(coverage.tested), inconsistent, growth)

    def _fed(self, replay: Any, state: Mapping[str, str]) -> list[dict[int, Any]]:
        """For each pass of a replay, the inputs of the next case that are outputs of this one: index of the input -> tensor.

        The type of the replay is not named here, because its module imports torch. state: input -> output.
        """
        if not replay.returned:
            raise Failed(replay.stopped or "the replay did not run to its end")
        inputs, outputs = list(self.state.inputs), list(self.state.outputs)
        places = [(inputs.index(name), outputs.index(output)) for name, output in state.items()]
        return [{to: tensors[origin].clone() for to, origin in places} for tensors in replay.returned]

    def measure_roundings(self, request: messages.MeasureRoundings) -> None:
        """Measure how much the roundings that explain some layers change the outputs of every case."""
        from ..explain.explained_roundings import output_changes

        state, changes = self.state, dict[str, Array]()
        models = state.replayed_models(request.weights, request.seed)
        for case, native in enumerate(state.native_cases(request.inputs)):
            found = output_changes(models, request.roundings, native, list(state.outputs))
            changes.update({case_key(case, name): change for name, change in found.items()})
        npz.save_file(changes, Path(request.path))

    def replay(self, request: messages.Replay) -> ReplayReport:
        """Replay the capture of another framework; see replay.forward."""
        from ..explain.replay import replay_forward
        from ..replay.tensors import Capture

        state, case, folder = self.state, request.case, Path(request.folder)
        records = {(record.name, record.call): record for record in request.records}
        captured = Capture(folder, request.channels_last, records, watched=frozenset(request.watched))
        arrays = npz.load_file(folder / "outputs.npz") if (folder / "outputs.npz").is_file() else {}
        outputs = {name: arrays.get(case_key(case, name)) for name in state.outputs}
        models = state.replayed_models(request.weights, request.seed)
        native = state.native_cases(request.inputs)[case]
        return replay_forward(models, captured, native, outputs, request.planted)

    # -- faults -------------------------------------------------------------------------------------------------------

    def list_faults(self, request: messages.ListFaults) -> tuple[Fault, ...]:
        """Every fault of the catalogue that a layer of this model can have."""
        from ..explain.faults import catalogue
        from ..float64.layer_kinds import leaves

        return tuple(
            Fault(name, index, entry.kind, entry.says, entry.rounding)
            for name, layer in leaves(self.state.model).items()
            if not any(
                weight.startswith(f"{name}.") for weight in self.state.computed
            )  # a change would be computed away
            for index, entry in enumerate(catalogue.plantable_faults(layer))
        )

    def plant_fault(self, request: messages.PlantFault) -> None:
        """Make a layer of the model faulty, and repair the layer that was faulty before."""
        from ..explain.faults import catalogue
        from ..float64.layer_kinds import leaves

        self.remove_fault(messages.RemoveFault())
        self.planted = leaves(self.state.model)[request.layer]
        catalogue.plant(self.planted, request.index)

    def remove_fault(self, request: messages.RemoveFault) -> None:
        """Remove the planted fault."""
        if self.planted is not None:
            object.__delattr__(self.planted, "forward")
            self.planted = None

    def faulty_calls(self, request: messages.FaultyCalls) -> None:
        """Compute the calls of a layer with a fault, in the layout of the framework that was captured."""
        from ..explain.faulty_calls import faulty_calls
        from ..replay.tensors import Capture

        records = {(record.name, record.call): record for record in request.records}
        captured = Capture(Path(request.folder), request.channels_last, records)
        models = self.state.replayed_models(request.weights, request.seed)
        native = self.state.native_cases(request.inputs)[request.case]
        found = faulty_calls(models, captured, request.layer, request.index, native)
        arrays = {returned_key(request.port_layer, *place): array for place, array in found.items()}
        npz.save_file(arrays, Path(request.path))


def _grows(found: Any) -> str:
    """Where the noise of a reference grows, in words; "" nowhere. found: a replay.consistency.Growth, or None."""
    if found is None:
        return ""
    place = f"layer `{found.layer}`" if found.within else between(found.before, found.layer)
    lines = f" ({found.source})" if found.source else ""
    return f"the noise grows from {found.earlier:.1g} to {found.share:.1g} of the values in {place}{lines}"


def _inconsistent(other: Any) -> str:
    """Where a reference computes something else in float32, in words. other: a replay.consistency.Inconsistency, or None."""
    if other is None:
        return ""
    place = f"layer `{other.layer}`" if other.within else between(other.before, other.layer)
    return f"output {other.output!r} by {other.share:.2g} of its size, {other.ratio:.3g} x what rounding explains, first in {place}"
