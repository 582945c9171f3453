"""What a framework adapter promises. One adapter is one file in xverify/frameworks/, found by its name.

The file defines ``Adapter``, a subclass of ``Framework``, and imports its framework only inside ``__init__``: the parent
process reads names and modes from the class, and a worker process makes the one instance.

An adapter runs and waits. It never looks at a clock, and never judges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..errors import Failed, Unsupported
from ..workload.optimizers import Optimizer
from ..workload.spec import ModelFolder, load_module
from .capture import Recorder, TrainingRecorder, recording

# A batch that is learnt from: the native inputs, then the labels.
Batch = tuple[Any, ...]
# Turns the adapter, a built model and one example (the native inputs, a tuple) into what is called with such inputs.
Mode = Callable[[Any, Any, tuple[Any, ...]], Callable[..., Any]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    folder: of its framework files. onnx: the reference's export, when there is one.
    """

    folder: Path
    onnx: Path | None = None


class Training:
    """A model that learns in one mode: what an adapter's ``training`` returns.

    The weights are the model's own, and are read and written through the adapter. names: the parameters that learn, by the
    framework's own names, which are ``save_weights``'. optimizer: the settings, with the variants in which the framework's own
    optimizer differs from torch's.
    """

    names: Sequence[str]
    optimizer: Optimizer
    # Parameters whose gradient comes as rows, of which an optimizer may see one several times.
    sparse: Sequence[str] = ()

    def step(self, *batch: Any) -> Any:
        """One whole step: forward, loss, backward, update; returns the loss. This is what is timed."""
        raise NotImplementedError

    def gradients(self, *batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        """The loss, and its gradient by name, in canonical layout, computed in the same mode; no parameter changes."""
        raise NotImplementedError

    def apply(self, gradients: Mapping[str, np.ndarray]) -> None:
        """An update alone, by these gradients by name, in canonical layout."""
        raise NotImplementedError

    def optimizer_state(self) -> tuple[int, dict[str, list[np.ndarray]]]:
        """How many steps were made, and the optimizer's state by name, in the order of ``optimizer.state_names``."""
        raise NotImplementedError

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[np.ndarray]]) -> None:
        """Set what ``optimizer_state`` returns."""
        raise NotImplementedError


class Framework:
    """The requirements of an adapter, with defaults where most frameworks agree."""

    name: ClassVar[str]
    # What pip installs, and the module whose import proves it: {"torch": "torch"}.
    needs: ClassVar[Mapping[str, str]]
    # Whose file of the model folder, and table of names.toml, it reads: another framework's, or '' for its own.
    file: ClassVar[str] = ""
    # The environment (`xverify env create NAME`) it lives in, where it cannot share one with the other frameworks; '' otherwise.
    isolated: ClassVar[str] = ""
    modes: ClassVar[Mapping[str, Mode]]
    # A mode that is another way to write the model: the options that its ``build`` gets besides.
    mode_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # The mode whose subject is written as the framework's name alone ("jittor"); None: the mode is always written.
    implicit_mode: ClassVar[str | None] = None
    # The modes that run when the user names no subject.
    default_modes: ClassVar[tuple[str, ...]] = ()
    # "onnx": weights travel by way of the reference's ONNX export when there is one; "canonical": directly.
    weights_route: ClassVar[str] = "canonical"
    # Whether the model itself is that export, rather than a file of the folder.
    runs_export: ClassVar[bool] = False
    # The method by which a layer object computes; a capture wraps it.
    layer_method: ClassVar[str] = "forward"
    # Where it can run.
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    # Whether it can train a model, so that --task train runs it when the user names no subject.
    trains: ClassVar[bool] = False
    # Whether the layers keep images as N,H,W,C.
    channels_last: ClassVar[bool] = False

    def __init__(self, threads: int, device: str) -> None:
        """Import the framework and fix its threads, before anything else runs in it."""
        raise NotImplementedError

    # -- before the process starts ------------------------------------------------------------------------------------

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        """Why this mode cannot hold this model, as far as its spec and files tell; '' when nothing speaks against it."""
        if cls.runs_export:
            return folder.spec.no_export
        absent = [option for option in cls.mode_options.get(mode, {}) if not folder.takes(cls.reads(), option)]
        return f"the model is written in one way only: its build takes no {', '.join(absent)}" if absent else ""

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        """Environment variables that must stand before the interpreter starts."""
        return {}

    @classmethod
    def slow_start(cls) -> str:
        """What the user should know while the first import takes minutes; '' when it does not."""
        return ""

    @classmethod
    def wants_restart(cls, log: str) -> bool:
        """Whether a process that ended while it imported, or in its first step, is best started again."""
        return False

    # -- the seven ----------------------------------------------------------------------------------------------------

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        """The folder's model in inference mode, with any weights; in float64 where the framework can, else Unsupported."""
        if float64:
            raise Unsupported(f"{self.name} has no float64 form of a model")
        return self.define(source, options)

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        """Set every weight from canonical arrays, whose names and shapes have been checked."""
        raise NotImplementedError

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        """Every weight, read back out of the built model, as canonical float32 arrays."""
        raise NotImplementedError

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        """A canonical array as the framework's own tensor, in its own layout, on its device."""
        raise NotImplementedError

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        """The framework's tensor as an array in canonical layout, of the dtype it has."""
        raise NotImplementedError

    def wait(self, outputs: Any) -> None:
        """Return when these outputs have been computed; ``wait(())`` when the device has nothing left to do."""
        raise NotImplementedError

    def environment(self) -> dict[str, Any]:
        """Versions, threads and whatever else changes numbers or speed."""
        raise NotImplementedError

    # -- what some frameworks need ------------------------------------------------------------------------------------

    def inference(self) -> AbstractContextManager[Any]:
        """Entered around every forward pass that is timed or compared."""
        return nullcontext()

    def device_memory(self) -> dict[str, float]:
        """MiB of the device: peak_mib that this framework took, used_mib by all, total_mib; {} on the CPU, or untold."""
        return {}

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        """Weights that this framework stores as one where the canonical form has several: name -> what it is the sum of."""
        return {}

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        """How many graphs have been traced or compiled for this callable so far; None when its mode makes none."""
        return None

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        """Set batch-norm statistics to those of these inputs, where the framework can."""

    def export_onnx(self, model: Any, inputs: tuple[Any, ...], names: tuple[list[str], list[str]], path: Path) -> None:
        """Write the model as ONNX, parameter names kept and nothing folded. names: (inputs, outputs)."""
        raise Unsupported(f"{self.name} exports no ONNX")

    def layers(self, model: Any) -> Mapping[str, Sequence[Any]]:
        """The model's layers, in the order of their definition, by the names that begin the names of their weights.

        Mostly one object a name; several when only together they are the layer that torch has under this name. {}: layers
        cannot be seen, and outputs alone are compared.
        """
        return {}

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Run one pass that records the calls of layers, and return its outputs. names: the framework's name -> canonical."""
        found = self.layers(model)
        wanted = {names[name]: parts for name, parts in found.items() if name in names}
        with self.inference(), recording(wanted, self.layer_method, recorder):
            outputs = self.modes["eager"](self, model, inputs)(*inputs)
            self.wait(outputs)
        return outputs

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        """Make the model learn in this mode: cross-entropy on logits, with the framework's own optimizer.

        match: with an exact equivalent of torch's mathematics, of the optimizer and of running statistics, built from the
        framework's own parts. The model's weights may be other ones afterwards. Raises Unsupported.
        """
        raise Unsupported(f"{self.name} is not trained by xverify")

    def release_memory(self) -> None:
        """Give up memory that the framework keeps for later calls."""

    def disable_dropout(self, model: Any) -> list[str]:
        """Turn dropout off for good, wherever the model has it; returns the layers' names."""
        return []

    def alias(self, tensor: Any) -> Any:
        """The same values as another node of the graph that gradients go through."""
        raise Unsupported(f"{self.name} shows no gradients within a model")

    def backward(
        self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]
    ) -> tuple[Any, float, list[Any], dict[str, np.ndarray]]:
        """One eager forward and backward pass in training: (outputs, loss, gradients of ``tensors()``, of the parameters).

        Nothing is updated. tensors: called after the forward pass. A gradient that is not there is None.
        """
        raise Unsupported(f"{self.name} shows no gradients within a model")

    def capture_training(self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder) -> Any:
        """As ``capture``, of a forward and a backward pass: also the gradients of what layers take and give."""
        wanted = {names[name]: parts for name, parts in self.layers(model).items() if name in names}
        with recording(wanted, self.layer_method, recorder):
            outputs, loss, gradients, own = self.backward(model, batch, recorder.tensors)
        recorder.take(gradients)
        return outputs, loss, own

    # -- shared -------------------------------------------------------------------------------------------------------

    def define(self, source: Source, options: Mapping[str, Any]) -> Any:
        """Call ``build(**options)`` in the folder's file for this framework."""
        file = self.reads()
        module = load_module(source.folder, file)
        if not callable(getattr(module, "build", None)):
            raise Failed(f"{source.folder / file}.py defines no build(**options)")
        return module.build(**options)

    @classmethod
    def reads(cls) -> str:
        """The name, without .py, of the model folder's file that this framework builds its model from."""
        return cls.file or cls.name

    @classmethod
    def label(cls, mode: str) -> str:
        """How a subject of this framework is written: ``torch:eager``, or ``jittor`` for the bare mode."""
        return cls.name if mode == cls.implicit_mode else f"{cls.name}:{mode}"

    @classmethod
    def subjects(cls) -> Iterator[str]:
        return (cls.label(mode) for mode in cls.modes)
