"""What runs a model in a worker process: the interface that an adapter of a framework and a format of model files share.

Names and layout are *canonical* when they are torch's: ``layer1.0.conv1.weight``, images as N,C,H,W, linear weights as
(out, in). They are *native* when they are the framework's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..errors import Unsupported
from ..workload.code import BUILD, import_from
from ..workload.imports import load_module, loaded_module

# A numpy array of any shape and dtype.
Array = NDArray[Any]
# A mode is a function (runner, model, example) -> callable. The example is a tuple of native inputs; the returned callable takes
# such inputs and returns the model's outputs, which may be nested (see ``structures``).
Mode = Callable[[Any, Any, tuple[Any, ...]], Callable[..., Any]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    folder: the folder that holds the model file of a framework; or the model file of a format.
    onnx: the ONNX export of the reference model; None when there is none.
    file: the name of the model file of a framework, without ``.py``. table: its table in names.toml.
    function: the function, class or object of this file that gives the model.
    project: another folder from which the file may import; "" for a file of a model folder.
    """

    folder: Path
    onnx: Path | None = None
    file: str = ""
    table: str = ""
    function: str = BUILD
    project: str = ""

    @property
    def title(self) -> str:
        """What messages call the model file."""
        return f"{self.file}.py"

    def load(self) -> ModuleType:
        """Import the model file, also where it was imported before."""
        import_from(self.folder, self.project)
        return load_module(self.folder, self.file)

    def loaded(self) -> ModuleType:
        """The module from which the model was built, so that its classes are those of the model."""
        import_from(self.folder, self.project)
        return loaded_module(self.folder, self.file)


class Runner:
    """Builds a model and calls it. It never reads a clock and never judges."""

    # The framework's name, equal to the name of the adapter's file without ``.py``.
    name: ClassVar[str]
    # Package to install -> module whose presence shows that it is installed, e.g. {"tensorflow-cpu": "tensorflow"}.
    needs: ClassVar[Mapping[str, str]]
    # The packages whose import shows that a file is of this framework; () means those of ``needs``.
    libraries: ClassVar[tuple[str, ...]] = ()
    # The name, without ``.py``, of the model file and of the table in names.toml that this adapter reads; '' means ``name``.
    file: ClassVar[str] = ""
    # The end of the name of its model file. A file that is no code is named by its path alone (see ports).
    suffix: ClassVar[str] = ".py"
    # How a subject is called whose model file is not the framework's own: ``torch-fused``; '' for the framework's own file.
    variant: ClassVar[str] = ""
    # The model file that a subject names by its path; None where it is in the model folder.
    path: ClassVar[Path | None] = None
    # The extra of the package that installs ``needs``; '' means ``name``. An environment of this name serves this adapter, too.
    extra: ClassVar[str] = ""
    # The environment (``xverify env create NAME``) of a framework that cannot be installed beside the others; '' otherwise.
    isolated: ClassVar[str] = ""
    # Mode name -> function that makes a callable of a model. The first one is the default.
    modes: ClassVar[Mapping[str, Mode]]
    # Mode name -> extra options for the model file's ``build``, for a mode in which the model is written in another way.
    mode_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    # The mode that a bare framework name means, e.g. "eager" for ``jittor``; None: subjects are always written with their mode.
    implicit_mode: ClassVar[str | None] = None
    # The modes that run when the user names no subject.
    default_modes: ClassVar[tuple[str, ...]] = ()
    # Whether ``load_weights`` takes any mapping and looks its arrays up one by one, so that they need not be in memory together.
    streams_weights: ClassVar[bool] = False
    # Why a callable takes inputs of the sizes of its example alone; '' where it takes others.
    one_size: ClassVar[str] = ""
    # How often a process of this framework has the weights in memory at its peak; see engine/memory.py.
    copies: ClassVar[float] = 4.0
    # The memory of a process of this framework beside its model, without pages of files, MiB; as bench/memory.py prints for mlp.
    overhead: ClassVar[int] = 250
    # Whether a process that has imported it can be forked: the import on the CPU starts no thread that a fork would miss.
    forks: ClassVar[bool] = False
    # Modules that such a process imports, too, because most workers would import them later.
    preloads: ClassVar[tuple[str, ...]] = ()
    # The devices on which the framework can run: "cpu", "cuda".
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    # Whether a call returns computed outputs, so that timed blocks leave ``wait`` out. ``__init__`` may set it by the device.
    blocking: bool = False
    # Whether another process computes, with a clock of its own that times the calls; see ``timed_pieces``.
    times_itself: ClassVar[bool] = False
    # Whether layers take and return images as N,H,W,C. An object may set it by its model.
    channels_last: bool = False
    # The input case that is computed: calls on equal inputs that were recorded one after another are told apart by it.
    case_asked: int = 0
    # Whether it has tensors without axes; where it has none, an output of shape (1,) stands for one.
    scalars: ClassVar[bool] = True

    def __init_subclass__(cls, **more: Any) -> None:
        """A class with a ``wait`` of its own is waited for, unless it says itself that its calls return computed outputs."""
        super().__init_subclass__(**more)
        if "wait" in vars(cls) and "blocking" not in vars(cls):
            cls.blocking = False

    def __init__(self, threads: int, device: str) -> None:
        """Import the framework, and set its number of threads before it computes anything.

        threads: number of threads for computation. device: one of ``devices``. Raises Unsupported when the machine has no such
        device.
        """
        raise NotImplementedError

    # -- class methods: the parent process calls them, and they import no framework ------------------------------------

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        """Environment variables that must be set before the worker process starts: name -> value."""
        return {}

    @classmethod
    def slow_start(cls) -> str:
        """What to tell the user when the first import takes minutes; '' when it does not."""
        return ""

    @classmethod
    def wants_restart(cls, log: str) -> bool:
        """Whether to start a process again that ended during the import or in its first step. log: what the process printed."""
        return False

    @classmethod
    def reads(cls) -> str:
        """The name, without ``.py``, of the model file from which it builds its model, and of its table in names.toml."""
        return cls.file or cls.name

    @classmethod
    def file_name(cls) -> str:
        """What messages call this file."""
        return cls.path.name if cls.path else f"{cls.reads()}{cls.suffix}"

    @classmethod
    def called(cls) -> str:
        """How its subjects are called, before their mode: by the framework's name, or by that of a variant."""
        return cls.variant or cls.name

    @classmethod
    def label(cls, mode: str) -> str:
        """How a subject is written: ``torch:eager``, or the framework's name alone for the implicit mode."""
        return cls.called() if mode == cls.implicit_mode else f"{cls.called()}:{mode}"

    @classmethod
    def subjects(cls) -> Iterator[str]:
        """How each mode of this framework is written as a subject."""
        return (cls.label(mode) for mode in cls.modes)

    # -- required methods ----------------------------------------------------------------------------------------------

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        """Build the model in inference mode, with any weights.

        options: keyword arguments for the ``build`` function of the model file.
        float64: build it in float64. Raises Unsupported when the framework cannot do that.
        """
        raise NotImplementedError

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        """Set every weight. arrays: native name -> array in canonical layout; names and shapes have been checked."""
        raise NotImplementedError

    def save_weights(self, model: Any) -> dict[str, Array]:
        """Read every weight back from the built model: native name -> float32 array in canonical layout."""
        raise NotImplementedError

    def to_native(self, array: Array, layout: str | None) -> Any:
        """Convert an array to the framework's tensor, in its own layout and on its device.

        layout: the axes of the array in canonical order, e.g. "NCHW"; None: the axes stay as they are.
        """
        raise NotImplementedError

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        """Convert a tensor to an array in canonical layout. The dtype stays.

        layout: the axes of the result in canonical order, e.g. "NCHW"; None: the axes stay as they are.
        """
        raise NotImplementedError

    def wait(self, outputs: Any) -> None:
        """Return when these outputs are computed. ``wait(())`` returns when the device has no more work to do.

        Outputs may be nested; ``structures.leaves`` lists what they hold.
        """
        raise NotImplementedError

    def environment(self) -> dict[str, object]:
        """Versions, threads and all other settings that change numbers or speed, as JSON values."""
        raise NotImplementedError

    # -- optional methods ----------------------------------------------------------------------------------------------

    def weights_of(self, model: Any) -> Mapping[str, Array]:
        """The same as ``save_weights``, for use before the weights change: the arrays need not be copies."""
        return self.save_weights(model)

    def to_input(self, name: str, array: Array, layout: str | None) -> Any:
        """Convert an array to the tensor of the model's input of this name. layout: as in ``to_native``."""
        return self.to_native(array, layout)

    def inference(self) -> AbstractContextManager[Any]:
        """The context manager for every forward pass that is timed or compared."""
        return nullcontext()

    def device_memory(self) -> dict[str, float]:
        """Memory of the device in MiB; {} on the CPU, and where the framework does not report it.

        Keys: "peak_mib", the greatest amount that this framework has used; "used_mib", used by all processes; "total_mib".
        """
        return {}

    def release_memory(self) -> None:
        """Free memory that the framework keeps for later calls."""

    def computes_in(self) -> int | None:
        """The number of the process that computes, whose memory and use of cores are measured; None: this one."""
        return None

    def timed_pieces(
        self, call: Callable[..., Any], cases: Sequence[tuple[Any, ...]], calls: int, count: int
    ) -> tuple[tuple[float, ...], Any]:
        """Time pieces, each of this number of calls on the cases in turn, where ``times_itself`` is set.

        cases: the native inputs of each. count: of pieces. Returns the seconds of each piece, and the outputs of the last call.
        """
        raise NotImplementedError

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        """The number of graphs that were traced or compiled for this callable; None when its mode makes no graphs."""
        return None

    def user_call(self, model: Any) -> Callable[..., Any] | None:
        """The model as its users call it, as a function of native inputs, where the modes call it with further arguments.

        None: the modes call it as its users do.
        """
        return None


class OnArrays(Runner):
    """A runner whose tensors are numpy's arrays, and whose calls return computed ones."""

    blocking = True

    def to_native(self, array: Array, layout: str | None) -> Any:
        return np.array(array, order="C")

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return np.asarray(tensor)

    def wait(self, outputs: Any) -> None:
        """A call returns computed arrays."""


def refuse_float64(float64: bool) -> None:
    """Raise Unsupported where a model is asked for in float64 of a runtime that has no other precision than the file's."""
    if float64:
        raise Unsupported("the runtime computes in the precision of the file")
