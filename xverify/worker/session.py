"""The worker: one framework, one model, one mode, in a process of its own (``python -m xverify.worker``).

It needs numpy and its framework, so it runs under any interpreter that has those; the one that replays layers, greenlet too.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import NotInstalled, SubjectError, WeightsError, XverifyError, first_line
from ..framework import discovery as frameworks
from ..framework.adapter import Framework, Source
from ..framework.capture import Recorder
from ..weights import canonical, load_file, npz
from ..weights.names import rename, rename_layers
from ..workload.keys import case_key
from . import protocol
from .training import Learning

CALIBRATION_BATCH = 8  # a variance of one or two values is no variance


class Session(Learning):
    """What a worker can be asked, an operation a method; ``handle`` is the whole protocol but for the pipes."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.framework: Framework
        self.model: Any
        self.call: Callable[..., Any]
        self.cases: list[tuple[Any, ...]] = []
        self.context = lambda: self.framework.inference()

    def handle(self, request: dict[str, Any]) -> dict[str, Any]:
        """Run one request; every exception becomes an error reply."""
        arguments = dict(request)
        try:
            operation = getattr(self, "do_" + arguments.pop("op"))
            return {"ok": operation(**arguments) or {}}
        except SubjectError as error:
            return _error(error.status, str(error))
        except XverifyError as error:
            return _error("failed", str(error))
        except MemoryError as error:
            return _error("failed", f"out of memory: {first_line(error)}; try a smaller --batch")
        except BaseException as error:
            traceback.print_exc()
            if isinstance(error, KeyboardInterrupt):
                raise
            return _error("failed", first_line(error) + self._place(error))

    # -- build --------------------------------------------------------------------------------------------------------

    def do_start(self, framework: str, threads: int, device: str) -> dict[str, Any]:
        """Import the framework."""
        adapter = frameworks.load(framework)
        start = self.clock()
        try:
            self.framework = adapter(threads, device)
        except ModuleNotFoundError as error:
            if error.name in adapter.needs.values():
                raise NotInstalled(f"{error.name} is not installed in {sys.executable}") from None
            raise
        return {"seconds": self.clock() - start, "environment": self.framework.environment()}

    def do_build(
        self,
        folder: str,
        options: dict[str, Any],
        onnx: str | None,
        names: dict[str, str],
        inputs: dict[str, str | None],
        outputs: dict[str, str | None],
        mode: str | None = None,
    ) -> dict[str, Any]:
        """Build the model. names: names.toml's table; inputs, outputs: name -> layout, in order; mode: what it will run in."""
        self.source = Source(Path(folder), Path(onnx) if onnx else None)
        options = {**options, **self.framework.mode_options.get(mode or "", {})}
        self.options, self.names = options, names
        self.inputs, self.outputs = inputs, outputs
        start = self.clock()
        self.model = self.framework.build(self.source, options)
        seconds = self.clock() - start
        own = self.framework.save_weights(self.model)
        self.canonical_names = rename(own, self.names)
        self.shapes = {self.canonical_names[name]: array.shape for name, array in own.items()}
        self.fused_parameters = self.framework.fused_parameters(self.model)
        return {"seconds": seconds, "shapes": self.shapes, "fused_parameters": self.fused_parameters}

    def do_load(self, path: str) -> dict[str, Any]:
        """Load weights, read them back out of the model, and report the digest of what was read."""
        self._write(self.model, npz.load_file(Path(path)))
        return self.do_digest({})

    def do_digest(self, fused_parameters: dict[str, list[str]]) -> dict[str, Any]:
        """The digest of the weights as they stand in the model, in the normal form of these fused_parameters."""
        return {"digest": canonical.digest(canonical.normal_form(self._read(self.model), fused_parameters))}

    def do_save(self, path: str) -> None:
        npz.save_file(self._read(self.model), Path(path))

    def do_read_file(self, file: str, path: str, trust: bool) -> dict[str, Any]:
        """Turn a weight file that only this framework reads into an array file."""
        try:
            npz.save_file(load_file(file, trust), Path(path))
        except WeightsError as error:
            return {"refused": str(error)}
        return {}

    def _read(self, model: Any) -> canonical.Arrays:
        own = {self.canonical_names[name]: array for name, array in self.framework.save_weights(model).items()}
        return canonical.to_canonical(own, source=f"{self.framework.name}'s weights")

    def _write(self, model: Any, arrays: canonical.Arrays) -> None:
        arrays = canonical.normal_form(arrays, self.fused_parameters)
        canonical.check(arrays, self.shapes, source="the weights")
        self.framework.load_weights(model, {own: arrays[name] for own, name in self.canonical_names.items()})

    # -- what only the reference is asked -----------------------------------------------------------------------------

    def do_calibrate(self, path: str, batch: int) -> None:
        """Set batch-norm statistics to those of the first cases together, ``CALIBRATION_BATCH`` items or more of them."""
        arrays = npz.load_file(Path(path))
        cases = range(min(len(arrays) // len(self.inputs), -(-CALIBRATION_BATCH // batch)))
        native = []
        for name, layout in self.inputs.items():
            parts = [arrays[case_key(case, name)] for case in cases]
            batched = len(parts[0].shape) > 0 and parts[0].shape[0] == batch
            native.append(self.framework.to_native(np.concatenate(parts) if batched else parts[0], layout))
        self.framework.calibrate(self.model, tuple(native))

    def do_export(self, inputs: str, path: str) -> None:
        """Write the ONNX form. The model's weights are not to be relied on afterwards: load them again."""
        names = (list(self.inputs), list(self.outputs))
        self.framework.export_onnx(self.model, self._native_cases(inputs)[0], names, Path(path))

    def do_evaluate(self, inputs: str, path: str, weights: str, float64: bool) -> dict[str, Any]:
        """Compute the outputs of every case, untimed. float64: with float32 weights and inputs widened."""
        model = self.framework.build(self.source, self.options, float64=True) if float64 else self.model
        self._write(model, npz.load_file(Path(weights)))
        cases = self._native_cases(inputs, float64)
        results = {}
        with self.framework.inference():
            call = self._mode(next(iter(self.framework.modes)))(self.framework, model, cases[0])
            for case, native in enumerate(cases):
                outputs = call(*native)
                self.framework.wait(outputs)
                results.update(self._arrays(case, outputs))
        npz.save_file(results, Path(path))
        return {"shapes": {name: array.shape for name, array in results.items()}}

    def do_layers(self) -> dict[str, Any]:
        """The layers that a replay compares, in the order of their definition."""
        from ..replay import stepping as passes

        return {"layers": list(passes.leaves(self.model))}

    def do_order(self, inputs: str, weights: str, seed: int) -> dict[str, Any]:
        """The layers as they are first called on the first case: (name, kind, shapes of the first input and output)."""
        from ..replay import stepping as passes

        found = passes.order(self._models(weights, seed), self._native_cases(inputs)[0])
        return {"order": [(name, type(self.models.layers[name]).__name__, *shapes) for name, shapes in found.items()]}

    def do_floors(self, inputs: str, path: str, weights: str, seed: int) -> dict[str, Any]:
        """Compute the outputs of every case in float64, into ``path``, with the floor of each: "case/name" -> rms.

        Also which weights and constants no test could see on the first case: see coverage.Coverage.
        """
        from ..replay import forward as replay
        from ..replay.coverage import Coverage
        from ..replay.tensors import Capture, rms

        models = self._models(weights, seed)
        results, floors = {}, {}
        coverage = Coverage(models)
        for case, native in enumerate(self._native_cases(inputs)):
            found = replay.Replay(models, Capture()).run(native, coverage.visit if case == 0 else None)
            names = [case_key(case, name) for name in self.outputs]
            for name, floor in zip(names, found):
                results[name] = floor.exact.numpy()
                floors[name] = {"floor": floor.rms(), "size": rms(floor.exact)}
        npz.save_file(results, Path(path))
        return {"floors": floors, "untested": coverage.untested, "tested": coverage.tested}

    def do_replay(
        self,
        folder: str,
        records: list[dict[str, Any]],
        channels_last: bool,
        inputs: str,
        case: int,
        weights: str,
        seed: int,
        planted: tuple[str, int] | None = None,
    ) -> dict[str, Any]:
        """Replay what another framework captured on this case; see replay.forward."""
        from ..replay import forward as replay
        from ..replay.tensors import Capture

        calls = {(record["name"], record["call"]): record for record in records}
        captured, returned = Capture(Path(folder), channels_last, calls), Path(folder) / "outputs.npz"
        arrays = npz.load_file(returned) if returned.is_file() else {}
        outputs = {name: arrays.get(case_key(case, name)) for name in self.outputs}
        models, native = self._models(weights, seed), self._native_cases(inputs)[case]
        return asdict(replay.replay_forward(models, captured, native, outputs, planted))

    # -- mutations ----------------------------------------------------------------------------------------------------

    def do_faults(self) -> dict[str, Any]:
        """Every fault of the catalogue that a layer of this model can have: {"layer", "index", "kind", "says", "rounding"}."""
        from ..replay import stepping as passes
        from ..replay.faults import catalogue

        return {
            "faults": [
                {"layer": name, "index": index, "kind": entry.kind, "says": entry.says, "rounding": entry.rounding}
                for name, layer in passes.leaves(self.model).items()
                for index, entry in enumerate(catalogue.plantable_faults(layer))
            ]
        }

    def do_plant(self, layer: str, index: int) -> None:
        """Make a layer of the model faulty; the next ``plant`` or ``uproot`` ends it."""
        from ..replay import stepping as passes
        from ..replay.faults import catalogue

        self.do_uproot()
        self.planted = passes.leaves(self.model)[layer]
        catalogue.plant(self.planted, index)

    def do_uproot(self) -> None:
        if getattr(self, "planted", None) is not None:
            object.__delattr__(self.planted, "forward")
            self.planted = None

    def _models(self, weights: str, seed: int) -> Any:
        from ..replay import stepping as passes

        if not hasattr(self, "models"):
            passes.return_freed_memory()
            float64_model = self.framework.build(self.source, self.options, float64=True)
            for model in (float64_model, self.model):
                self._write(model, npz.load_file(Path(weights)))
            self.models = passes.Models(float64_model, self.model, seed)
        return self.models

    # -- run ----------------------------------------------------------------------------------------------------------

    def do_prepare(self, inputs: str, mode: str) -> dict[str, Any]:
        """Put the input cases on the device, make the callable, and run it twice, each time on the clock."""
        self.cases = self._native_cases(inputs)
        start = self.clock()
        with self.context():
            self.call = self._mode(mode)(self.framework, self.model, self.cases[0])
            self._block(0, 1)
        first = self.clock() - start
        return {"first_step_seconds": first, "second_step_seconds": self.do_block(0, 1)["seconds"]}

    def do_warm(self, calls: int, seconds: float) -> dict[str, Any]:
        """Call at least ``calls`` times and for at least ``seconds``; seconds a call of the last call."""
        start, done, last = self.clock(), 0, 0.0
        while done < calls or self.clock() - start < seconds:
            last = self.do_block(done % len(self.cases), 1)["seconds"]
            done += 1
        return {"calls": done, "seconds": self.clock() - start, "seconds_per_call": last}

    def do_block(self, case: int, calls: int, keep: str | None = None, room: int = 0) -> dict[str, Any]:
        """Time ``calls`` calls on one input case.

        keep: a file for the outputs of the last call. Then ``unfinished_seconds`` says how much longer their first
        reading took than their second: computation that ``wait`` left undone. room: bytes that a reading may need.
        """
        with self.context():
            seconds, outputs = self._block(case, calls)
            if keep is None:
                return {"seconds": seconds}
            # Memory that the system has to find first can take seconds: let it be at hand for the first reading too.
            np.ones(room, np.uint8)
            start = self.clock()
            self._arrays(case, outputs)
            middle = self.clock()
            arrays = self._arrays(case, outputs)
            unfinished = (middle - start) - (self.clock() - middle)
        npz.save_file(arrays, Path(keep))
        return {"seconds": seconds, "unfinished_seconds": unfinished}

    def do_device_memory(self) -> dict[str, Any]:
        """What framework.device_memory tells."""
        return dict(self.framework.device_memory())

    def do_release_memory(self) -> None:
        """Give free memory back to the system, which others need while this subject waits: of a training step, half and more."""
        gc.collect()
        self.framework.release_memory()
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
        if trim is not None:
            trim(0)

    def do_graph_count(self) -> dict[str, Any]:
        """How many graphs the callable has made so far; None when it makes none."""
        return {"graph_count": self.framework.graph_count(self.call)}

    def do_capture(self, inputs: str, case: int, folder: str, wanted: list[str] | None) -> dict[str, Any]:
        """Run one untimed pass on this case of these inputs, and write what every layer took and gave into a folder.

        wanted: canonical names of layers; None: every layer that holds no others. The reply has the records of
        capture.Recorder, the kinds of the captured layers, and the others that there are.
        """
        recorder = Recorder(Path(folder), self._plain)
        layers = self.framework.layers(self.model)
        known = rename_layers(layers, self.names)
        leaves = {name: to for name, to in known.items() if not any(other.startswith(name + ".") for other in layers)}
        names = {name: to for name, to in known.items() if to in set(wanted)} if wanted is not None else leaves
        try:
            outputs = self.framework.capture(self.model, self._native_cases(inputs)[case], names, recorder)
        except (SubjectError, MemoryError):
            raise
        except Exception as error:
            # Where a model breaks off is known best by the layers that it did compute.
            traceback.print_exc()
            broken = first_line(error) + self._place(error)
        else:
            broken = ""
            npz.save_file(self._arrays(case, outputs), Path(folder) / "outputs.npz")
        return {
            "records": recorder.records,
            "kinds": {to: type(layers[name][0]).__name__ for name, to in names.items()},
            "others": sorted(set(leaves.values()) - set(names.values())),
            "channels_last": self.framework.channels_last,
            "broken": broken,
        }

    def _plain(self, value: Any) -> np.ndarray | None:
        """A tensor as it stands in the framework's own layout; None for anything else, and for a tensor without values."""
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            return None
        try:
            return self.framework.to_numpy(value, None)
        except (AttributeError, NotImplementedError, TypeError):
            return None

    def _block(self, case: int, calls: int) -> tuple[float, Any]:
        call, wait, clock, inputs = self.call, self.framework.wait, self.clock, self.cases[case]
        outputs: Any = ()
        wait(())
        start = clock()
        for _ in repeat(None, calls):
            outputs = call(*inputs)
            wait(outputs)
        wait(())
        return clock() - start, outputs

    # -- shared -------------------------------------------------------------------------------------------------------

    def _mode(self, mode: str) -> Callable[..., Any]:
        return self.framework.modes[mode]

    def _native_cases(self, path: str, float64: bool = False) -> list[tuple[Any, ...]]:
        arrays = npz.load_file(Path(path))
        if float64:
            arrays = {name: a.astype(np.float64) if a.dtype == np.float32 else a for name, a in arrays.items()}
        count = len(arrays) // len(self.inputs)
        return [
            tuple(
                self.framework.to_native(arrays[case_key(case, name)], layout) for name, layout in self.inputs.items()
            )
            for case in range(count)
        ]

    def _arrays(self, case: int, outputs: Any) -> dict[str, np.ndarray]:
        return {
            case_key(case, name): self.framework.to_numpy(tensor, self.outputs.get(name))
            for name, tensor in _named(outputs, list(self.outputs)).items()
        }

    def _place(self, error: BaseException) -> str:
        """Where in the model folder the error arose, '' when elsewhere."""
        folder = str(self.source.folder) if hasattr(self, "source") else None
        for frame in reversed(traceback.extract_tb(error.__traceback__)):
            if folder and frame.filename.startswith(folder):
                return f" ({frame.filename}:{frame.lineno})"
        return ""


def _named(outputs: Any, names: list[str]) -> Mapping[str, Any]:
    """Outputs by the spec's names. One too many is called output[i]; one too few is absent, for the comparison to see."""
    if isinstance(outputs, Mapping):
        return outputs
    if not isinstance(outputs, (tuple, list)):
        outputs = (outputs,)
    return {names[i] if i < len(names) else f"output[{i}]": tensor for i, tensor in enumerate(outputs)}


def _error(status: str, reason: str) -> dict[str, Any]:
    return {"error": {"status": status, "reason": reason}}


def main() -> None:
    # The protocol takes the pipes for itself first: whatever a framework, or a compiler that it starts, writes to the
    # standard streams goes to the log.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(2, 1)

    def reply(message: dict[str, Any]) -> None:
        replies.write(protocol.encode(message))
        replies.flush()

    reply({"xverify": protocol.VERSION, "pid": os.getpid(), "python": sys.version.split()[0]})
    session = Session()
    for line in requests:
        request = protocol.decode(line)
        if request is None or request.get("op") == "stop":
            break
        reply(session.handle(request))
    # A framework's threads and exit handlers have nothing left to say.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
