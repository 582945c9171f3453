"""The interface of a framework adapter.

An adapter is one file, ``xverify/frameworks/NAME/adapter.py``, and is found by its name. It defines a class ``Adapter``, a subclass
of ``Framework``, and imports its framework only inside ``__init__``. The parent process reads names and modes from the class; each
worker process makes one instance. An adapter runs a model and waits for its outputs. It never reads a clock and never judges.

Names and layout are *canonical* when they are torch's: ``layer1.0.conv1.weight``, images as N,C,H,W, linear weights as
(out, in). They are *native* when they are the framework's own. ``frameworks/numpy/adapter.py`` is the smallest complete adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from ..errors import Failed, Unsupported
from ..workload.losses import Loss
from ..workload.operations import Operations
from ..workload.optimizers import Optimizer
from ..workload.spec import ModelFolder, load_module
from .capture import Recorder, TrainingRecorder, recording
from .structures import Natives, only_output
from .training import BackwardPass, Batch, Training

# A numpy array of any shape and dtype.
Array = NDArray[Any]
# (names of the inputs, names of the outputs) of a model.
Names = tuple[list[str], list[str]]
IN_MEMORY = 2**28  # bytes of the parameters of a model with a folder in ``disk`` that stay in memory nevertheless
# A mode is a function (adapter, model, example) -> callable. The example is a tuple of native inputs; the returned callable takes
# such inputs and returns the model's outputs, which may be nested (see ``structures``).
Mode = Callable[[Any, Any, tuple[Any, ...]], Callable[..., Any]]


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    folder: the folder that holds the framework's model file.
    onnx: the ONNX export of the reference model; None when there is none.
    """

    folder: Path
    onnx: Path | None = None


@dataclass(frozen=True)
class Activations:
    """The sizes of what the operations of a float32 pass take and return, without weights; bytes.

    largest: of one operation, the most. total: what all operations return.
    unfolded: the largest matrix that a convolution makes of its input, where it computes by a product of matrices.
    """

    largest: float = 0.0
    total: float = 0.0
    unfolded: float = 0.0

    def times(self, factor: float) -> Activations:
        """Those of a batch that is larger by this factor."""
        return Activations(*(factor * size for size in astuple(self)))


@dataclass(frozen=True)
class Setup:
    """What a run asks for, beside the model itself.

    objective: computes the loss from the outputs and a dictionary of targets; None: the mean cross-entropy of the only output.
    precision: in which models compute in training.
    loss_scale: what ``backward`` multiplies the loss by; the gradients that it returns are divided by it again.
    zeros: returns zeros in place of the native inputs, in float64 where it is given True; None: nothing is known about the inputs.
        ``build`` calls a model with them that has no weights before its first call.
    disk: a folder in which models keep large parameters; None: in memory. Only a reference needs it.
    """

    objective: Callable[[Any, Mapping[str, Any]], Any] | None = None
    precision: str = "float32"
    loss_scale: float = 1.0
    zeros: Callable[[bool], tuple[Any, ...]] | None = None
    disk: Path | None = None


class Framework:
    """The base class of every adapter, with defaults for what most frameworks have in common.

    Every adapter defines ``name``, ``needs``, ``modes``, ``__init__`` and the methods of the section "required methods".
    """

    # The framework's name, equal to the name of the adapter's file without ``.py``.
    name: ClassVar[str]
    # Package to install -> module whose presence shows that it is installed, e.g. {"tensorflow-cpu": "tensorflow"}.
    needs: ClassVar[Mapping[str, str]]
    # The name, without ``.py``, of the model file and of the table in names.toml that this adapter reads; '' means ``name``.
    file: ClassVar[str] = ""
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
    # The mode in which ``capture`` runs the model; "" when it runs the model as none of the modes does.
    captured_mode: ClassVar[str] = "eager"
    # The modes that run when the user names no subject.
    default_modes: ClassVar[tuple[str, ...]] = ()
    # How weights reach the framework: "onnx" (from the reference's ONNX export, when there is one) or "canonical" (directly).
    weights_route: ClassVar[str] = "canonical"
    # Whether ``load_weights`` takes any mapping and looks its arrays up one by one, so that they need not be in memory together.
    streams_weights: ClassVar[bool] = False
    # How often a process of this framework has the weights in memory at its peak; see engine/memory.py.
    copies: ClassVar[float] = 4.0
    # The memory of a process of this framework beside its model, without pages of files, MiB; as bench/memory.py prints for mlp.
    overhead: ClassVar[int] = 250
    # Whether the adapter runs the reference's ONNX export instead of a model file of the folder.
    runs_export: ClassVar[bool] = False
    # The name of the method with which a layer object computes; layers are captured by wrapping it.
    layer_method: ClassVar[str] = "forward"
    # The devices on which the framework can run: "cpu", "cuda".
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    # Whether ``training`` is implemented. ``--task train`` runs such frameworks when the user names no subject.
    trains: ClassVar[bool] = False
    # Whether ``training`` takes a recipe (workload.recipe): parameter groups, clipping, a schedule and the like.
    takes_recipe: ClassVar[bool] = False
    # The precisions below float32 in which ``training`` can compute: "bfloat16", "float16".
    mixed: ClassVar[tuple[str, ...]] = ()
    # Why ``mixed`` lacks a precision that the framework has a setting for, as a sentence; '' where there is nothing to say.
    not_mixed: ClassVar[str] = ""
    # Whether a call returns computed outputs, so that timed blocks leave ``wait`` out. ``__init__`` may set it by the device.
    blocking: bool = False
    # Whether layers take and return images as N,H,W,C.
    channels_last: ClassVar[bool] = False
    # What the run asks for; ``set_up`` replaces it.
    setup: Setup = Setup()

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
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        """Why this mode cannot run this model, according to its spec and files; '' when it can."""
        if cls.runs_export:
            return folder.spec.no_export
        absent = [option for option in cls.mode_options.get(mode, {}) if not folder.takes(cls.reads(), option)]
        return f"the model is written in one way only: its build takes no {', '.join(absent)}" if absent else ""

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

    def set_up(self, setup: Setup) -> None:
        """Take what the run asks for, for everything that follows. A worker calls it before ``build`` and ``training``."""
        self.setup = setup

    # -- required methods ----------------------------------------------------------------------------------------------

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        """Build the model in inference mode, with any weights.

        options: keyword arguments for the ``build`` function of the model file.
        float64: build it in float64. Raises Unsupported when the framework cannot do that.
        """
        if float64:
            raise Unsupported(f"{self.name} cannot build a model in float64")
        return self.define(source, options)

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        """Set every weight. arrays: native name -> array in canonical layout; names and shapes have been checked."""
        raise NotImplementedError

    def save_weights(self, model: Any) -> dict[str, Array]:
        """Read every weight back from the built model: native name -> float32 array in canonical layout."""
        raise NotImplementedError

    def weights_of(self, model: Any) -> Mapping[str, Array]:
        """The same as ``save_weights``, for use before the weights change: the arrays need not be copies."""
        return self.save_weights(model)

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

    def to_input(self, name: str, array: Array, layout: str | None) -> Any:
        """Convert an array to the tensor of the model's input of this name. layout: as in ``to_native``."""
        return self.to_native(array, layout)

    def inference(self) -> AbstractContextManager[Any]:
        """The context manager for every forward pass that is timed or compared."""
        return nullcontext()

    def float64_arithmetic(self) -> AbstractContextManager[Any]:
        """The context manager for a forward pass of a float64 model, whose code may ask for float32 by name."""
        return self.inference()

    def device_memory(self) -> dict[str, float]:
        """Memory of the device in MiB; {} on the CPU, and where the framework does not report it.

        Keys: "peak_mib", the greatest amount that this framework has used; "used_mib", used by all processes; "total_mib".
        """
        return {}

    def release_memory(self) -> None:
        """Free memory that the framework keeps for later calls."""

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        """Weights that the framework stores as one tensor where torch has several: name -> names of the tensors whose sum it is."""
        return {}

    def computed_weights(self, model: Any) -> dict[str, tuple[str, ...]]:
        """Weights that the model computes from others, as a weight norm does: name -> names of these. Only a reference needs it."""
        return {}

    def own_buffers(self, model: Any) -> list[str]:
        """The weights that are no parameters, such as a constant filter, in layers of the model file. Only a reference needs it."""
        return []

    def advice_on_axes(self, model: Any, name: str, shape: tuple[int, ...]) -> str:
        """What the user can declare so that a weight gets this shape, as a clause; "" when nothing helps.

        name: native name of the weight. shape: that of the reference.
        """
        return ""

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        """The number of graphs that were traced or compiled for this callable; None when its mode makes no graphs."""
        return None

    def precisions(self, model: Any) -> Mapping[str, str]:
        """The dtype of every weight as the model holds it: native name -> for example "float64". {}: they are not accessible.

        Only a reference needs it. A model that was asked for in float64 may hold other weights, because its file makes them so.
        """
        return {}

    def activations(self, model: Any, inputs: tuple[Any, ...], training: bool) -> Activations:
        """The sizes of the activations of a pass on these native inputs, without computing it. Only a reference needs it.

        training: whether gradients will be computed. Raises any error where the code of the model needs values.
        """
        raise Unsupported(f"the adapter of {self.name} does not tell the sizes of activations")

    def random_operation(self, model: Any, inputs: tuple[Any, ...], folder: Path) -> str:
        """The first operation of a pass that draws random numbers, with its line in a file of ``folder``; "" when not known."""
        return ""

    def user_call(self, model: Any) -> Callable[..., Any] | None:
        """The model as its users call it, as a function of native inputs, where the modes call it with further arguments.

        None: the modes call it as its users do.
        """
        return None

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        """Set the running statistics of batch norms to those of these native inputs. Only a reference needs it."""

    def export_onnx(self, model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool) -> str:
        """Write the model as an ONNX file that keeps parameter names and folds no constants. Only a reference needs it.

        inputs: an example of native inputs. names: (names of the inputs, names of the outputs).
        with_weights: False: the file need not hold the values of weights, which are then inputs of the graph.
        Returns why the usual exporter could not make it; "" when it did.
        """
        raise Unsupported(f"{self.name} cannot export ONNX")

    def layers(self, model: Any) -> Mapping[str, Sequence[Any]]:
        """The layers of the model in the order of their definition: name -> layer objects.

        A layer's name is the prefix of its weights' names. A name has several objects when only together they are the layer that
        torch has under this name. {}: layers are not accessible, and only outputs are compared.
        """
        return {}

    def side_by_side(self, parts: Sequence[Any]) -> bool:
        """Whether the objects of a name of ``layers`` compute beside one another, and not one after the other."""
        return False

    def joined_outputs(self, parts: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """What a layer returns whose objects compute side by side; None for others. outputs: what each of them returned."""
        return None

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Run one forward pass, record the inputs and outputs of layers, and return the model's outputs.

        names: native name -> canonical name of each layer to record.
        """
        layers = self._chosen_layers(model, names)
        with self.inference(), recording(layers, self.layer_method, recorder, self.joined_outputs):
            outputs = self.modes["eager"](self, model, inputs)(*inputs)
            self.wait(outputs)
        return outputs

    # -- optional methods for training ---------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        """Prepare the model for training in this mode, with the loss of ``loss``.

        The weights of the model may be different afterwards; they are set before the first step.

        batch: an example. optimizer: its name and settings, in torch's terms.
        match: False: use the framework's own optimizer. True: use an exact equivalent of torch's formulas, for the optimizer and
            for running statistics, made of the framework's own operations. With variants in the settings, the formula
            of the optimizer is this wrong one, which a mutation plants.
        Raises Unsupported when the framework cannot do that.
        """
        raise Unsupported(f"the adapter of {self.name} does not support training")

    def loss(self, outputs: Any, targets: Any) -> Any:
        """The loss of a training step as a native scalar. targets: the last entry of a Batch."""
        if self.setup.objective is None:
            return self.cross_entropy(only_output(outputs), targets)
        return self.setup.objective(outputs, targets)

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        raise Unsupported(f"the adapter of {self.name} does not support training")

    @property
    def operations(self) -> Operations:
        """The array operations of the framework, of which named losses and exact equivalents of optimizers are made."""
        raise Unsupported(
            f"the adapter of {self.name} trains with the cross-entropy of one output, or with a loss of the model file"
        )

    def loss_value(self, loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
        """The value of a named loss without its weight, as a native scalar; see workload.loss_formulas.value."""
        from ..workload.loss_formulas import value  # the parent needs no formulas

        return value(self.operations, loss, x, t, axis, lengths)

    def disable_dropout(self, model: Any) -> list[str]:
        """Set the probability of every dropout layer to zero permanently. Returns the names of the layers changed."""
        return []

    def dropouts(self, model: Any) -> Mapping[str, Any]:
        """The dropout layers of the model by the names of ``layers``. {}: they cannot be given masks (--dropout-masks)."""
        return {}

    def drop(self, layer: Any, x: Any) -> Any:
        """Call one of the ``dropouts`` in training mode, without gradients. x: a native tensor."""
        raise Unsupported(f"the adapter of {self.name} does not call dropout layers")

    def alias(self, tensor: Any) -> Any:
        """Copy a tensor into a new node of the graph, so that gradients with respect to the two can be told apart."""
        raise Unsupported(f"the adapter of {self.name} does not compute gradients within a model")

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        """Run one eager forward and backward pass in training mode, without an update.

        tensors: function that is called after the forward pass, and returns the tensors whose gradients are wanted.
        """
        raise Unsupported(f"the adapter of {self.name} does not compute gradients within a model")

    def capture_training(
        self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder
    ) -> tuple[Any, float, Mapping[str, Array]]:
        """Run one forward and backward pass, and record the inputs, the outputs and their gradients of layers.

        names: native name -> canonical name of each layer to record.
        Returns the model's outputs, the loss, and native parameter name -> gradient in canonical layout.
        """
        with recording(self._differentiated_layers(model, names), self.layer_method, recorder):
            found = self.backward(model, batch, recorder.tensors)
        recorder.take(found.tensor_gradients)
        return found.outputs, found.loss, found.parameter_gradients

    # -- optional methods for a train_step of the model file (see own_step) ---------------------------------------------

    def own_step(self, step: Any, mode: str) -> Callable[[Natives], Any]:
        """The user's own step as it runs in this mode. step: a BoundStep. Raises Unsupported when it cannot run there."""
        raise Unsupported(f"{self.name} does not run a train_step of the model file")

    def train(self, model: Any) -> None:
        """Set a model to training mode, where that is a state of the model."""

    def is_optimizer(self, value: Any) -> bool:
        """Whether a value is an optimizer of this framework."""
        return False

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        """The own_step.Update of every call of an optimizer within the context, as far as it is an eager one."""
        return nullcontext([])

    # -- helpers that no adapter needs to change -----------------------------------------------------------------------

    def define(self, source: Source, options: Mapping[str, Any]) -> Any:
        """Call ``build(**options)`` of the model file for this framework. Raises Failed when the file defines no ``build``."""
        file = self.reads()
        module = load_module(source.folder, file)
        if not callable(getattr(module, "build", None)):
            raise Failed(f"{source.folder / file}.py defines no build(**options)")
        return module.build(**options)

    def _chosen_layers(self, model: Any, names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
        """Canonical name -> objects of each layer to record. names: native name -> canonical name."""
        chosen: dict[str, Sequence[Any]] = {}
        for name, objects in self.layers(model).items():
            if name in names:
                chosen[names[name]] = [*chosen.get(names[name], ()), *objects]
        return chosen

    def _differentiated_layers(self, model: Any, names: Mapping[str, str]) -> dict[str, Sequence[Any]]:
        """As ``_chosen_layers``, without layers whose outputs are joined: the gradients of joined outputs are not known."""
        chosen = self._chosen_layers(model, names)
        return {name: objects for name, objects in chosen.items() if not self.side_by_side(objects)}

    @classmethod
    def reads(cls) -> str:
        """The name, without ``.py``, of the model file from which this framework builds its model."""
        return cls.file or cls.name

    @classmethod
    def label(cls, mode: str) -> str:
        """How a subject is written: ``torch:eager``, or the framework's name alone for the implicit mode."""
        return cls.name if mode == cls.implicit_mode else f"{cls.name}:{mode}"

    @classmethod
    def subjects(cls) -> Iterator[str]:
        """How each mode of this framework is written as a subject."""
        return (cls.label(mode) for mode in cls.modes)
