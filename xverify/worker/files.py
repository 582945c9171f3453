"""The work of a worker whose model is a file."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Failed, NotInstalled, SubjectError
from ..framework.modelfile import Change, ModelFile, Signature
from ..messages.files import (
    Compute,
    Computed,
    FindRandomOperators,
    NodesTraced,
    ReadPrecision,
    ReadSignature,
    ReadWeights,
    TraceNodes,
    WeightsRead,
)
from ..results.precision import Precision
from ..weights import npz
from ..weights.canonical import Array
from ..workload import probe
from ..workload.keys import case_key
from .fed import feed
from .handlers import Group

TEXTS = "OSU"  # kinds of numpy's dtypes that are no numbers: they are not compared


class FileWork(Group):
    """Handlers of requests about a model file."""

    def read_signature(self, request: ReadSignature) -> Signature:
        """Read the signature, and use its names from now on unless ``Build`` gave names."""
        state = self.state
        signature = self._format().signature(state.model)
        if not state.inputs:
            state.inputs = {tensor.name: None for tensor in signature.inputs}
            state.outputs = {tensor.name: None for tensor in signature.outputs}
        return signature

    def read_precision(self, request: ReadPrecision) -> Precision:
        """Find the precision of the file. What cannot be found out is unknown, and no error."""
        try:
            return self._format().precision(self.state.model)
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return Precision()

    def find_random_operators(self, request: FindRandomOperators) -> tuple[str, ...]:
        """Find the operators that draw random numbers. What cannot be looked through shows none."""
        try:
            return tuple(self._format().random_operators(self.state.model))
        except (AttributeError, LookupError, RuntimeError, TypeError, ValueError):
            return ()

    def read_weights(self, request: ReadWeights) -> WeightsRead:
        """Write the weights of the file."""
        try:
            stored = self._format().stored(self.state.model)
        except ModuleNotFoundError as error:
            raise NotInstalled(f"{error.name} is not installed, which reads the weights of a file") from None
        arrays = {name: array for name, array in stored.arrays.items() if array.size}
        npz.save_file(arrays, Path(request.path))
        return WeightsRead(stored.norms, dict(stored.quantised), dict(stored.places))

    def compute(self, request: Compute) -> Computed:
        """Compute the outputs of every case."""
        state, form = self.state, self._format()
        begun = state.clock()
        model = state.model
        change = _change(request)
        if request.float64 or change is not None or request.anew:
            model = form.build(state.source, state.options, float64=request.float64)
        changed = None if change is None else form.with_weights(model, change, Path(request.path).parent)
        model = model if changed is None else changed
        signature = form.signature(model)
        cases = self._cases(form, signature, request)
        mode = request.mode or form.implicit_mode or next(iter(form.modes))
        results: dict[str, Array] = {}
        perturbation = nullcontext() if request.perturb is None else form.rounded_operations(request.perturb)
        with form.inference(), perturbation:
            try:
                call = form.modes[mode](form, model, cases[0])
                outputs: Any = {}
                for case in _order(len(cases), request):
                    native = cases[case]
                    if case and request.state:
                        native = feed(form, signature.inputs, native, outputs, request.state, request.perturb)
                    outputs = call(*native)
                    form.wait(outputs)
                    arrays = {case_key(case, name): form.to_numpy(value, None) for name, value in outputs.items()}
                    results.update({key: array for key, array in arrays.items() if array.dtype.kind not in TEXTS})
            except (SubjectError, MemoryError):
                raise
            except Exception as error:
                kind, cause = form.cause(error)
                raise kind(f"{state.source.folder.name}: {form.runtime} cannot compute it: {cause}") from error
        seconds = state.clock() - begun
        npz.save_file(results, Path(request.path))
        return Computed(
            {name: array.shape for name, array in results.items()},
            {name: array.dtype.name for name, array in results.items()},
            seconds,
            request.redraw is not None and changed is not None,
        )

    def trace_nodes(self, request: TraceNodes) -> NodesTraced:
        """Compute one case node by node, and write the value of every node."""
        form, state = self._format(), self.state
        try:
            model, wide = form.build(state.source, state.options, float64=True), True
        except SubjectError:
            model, wide = state.model, False
        signature = form.signature(model)
        native = self._cases(form, signature, Compute(request.inputs, "", float64=wide))[request.case]
        inputs = dict(zip((tensor.name for tensor in signature.inputs), native))
        with form.inference():
            try:
                found = form.traced(model, inputs)
            except (SubjectError, MemoryError):
                raise
            except Exception as error:
                kind, cause = form.cause(error)
                raise kind(f"its nodes cannot be computed one by one: {cause}") from error
        files: dict[str, str] = {}
        for name in list(found.values):
            array = np.asarray(found.values.pop(name))
            if array.dtype.kind in "fiub":
                files[name] = f"{len(files)}.npy"
                np.save(Path(request.folder) / files[name], array, allow_pickle=False)
        return NodesTraced(found.graph, files)

    def _cases(self, form: ModelFile, signature: Signature, request: Compute) -> list[tuple[Any, ...]]:
        """The native inputs of every case, in the order of the signature."""
        arrays = npz.load_file(Path(request.inputs))
        count = 1 + max((int(key.partition("/")[0]) for key in arrays), default=0)
        cases = []
        for case in range(count):
            missing = [t.name for t in signature.inputs if case_key(case, t.name) not in arrays]
            if missing:
                raise Failed(f"case {case} has no array for the input {', '.join(map(repr, missing))}")
            native = []
            for tensor in signature.inputs:
                array = arrays[case_key(case, tensor.name)]
                if request.float64 and tensor.dtype == "float64":
                    native.append(form.to_native(array.astype(np.float64), None))
                else:
                    native.append(form.to_input(tensor.name, array, None))
            cases.append(tuple(native))
        return cases

    def _format(self) -> ModelFile:
        framework = self.state.runner
        if not isinstance(framework, ModelFile):
            raise Failed(f"{framework.name} does not open model files")
        return framework


def _change(request: Compute) -> Change | None:
    """What a request changes of the weights. A float64 model rounds in its operations instead."""
    if request.redraw is not None:
        return partial(probe.redrawn, seed=request.redraw)
    if request.perturb is None or request.float64:
        return None
    return partial(probe.perturb, seed=request.perturb)


def _order(count: int, request: Compute) -> list[int]:
    """The cases in the order of their calls; the last call of a case counts."""
    cases = list(range(count))
    if not request.again or request.anew:
        return cases
    return [0, *cases] if request.state or count == 1 else cases[::-1]
