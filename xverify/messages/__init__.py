"""Requests that every worker answers, and their replies, with one frozen dataclass for each message.

``class Build(Request[Built])`` means that ``Build`` is answered by a ``Built``. A reply is a record, a plain value such as
``tuple[str, ...]``, or None, which says that the request is done. Arrays are passed in files; a message has their
paths. The other files of this package hold the requests to special workers, for example ``training``. ``codec`` writes messages
as lines; ``lifeline`` and ``limits`` are the two other things that the parent and a worker agree on.

Both ends import this package. It may import framework and everything below it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..framework.capture import LayerCall
from ..workload.code import BUILD
from ..workload.losses import Objective
from .codec import Request

Json = dict[str, Any]  # an adapter's environment, and a model's options, may have any JSON values


# -- the process and its model ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started:
    """The framework is imported.

    seconds: duration of the import.
    environment: versions, threads and all other settings that change numbers or speed.
    process: the number of the process that computes, where it is none of the worker's own; None: the worker computes.
    """

    seconds: float
    environment: Json
    process: int | None = None


@dataclass(frozen=True)
class Start(Request[Started]):
    """Import the framework.

    framework: name of the adapter.
    threads: number of threads that the framework may use.
    device: name of the device, for example "cpu".
    """

    framework: str
    threads: int
    device: str


@dataclass(frozen=True)
class Built:
    """The model is built.

    seconds: duration of the build.
    shapes: canonical name of a weight -> its shape.
    fused_parameters: canonical name -> names of the weights whose sum the framework stores under this name.
    computed: canonical name of a weight that the model computes from others -> names of these others.
    buffers: the weights that are no parameters, in layers of the model file.
    stored: those that the model stores otherwise.
    """

    seconds: float
    shapes: dict[str, tuple[int, ...]]
    fused_parameters: dict[str, tuple[str, ...]]
    computed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()


@dataclass(frozen=True)
class InputSize:
    """The shape of an input at the batch of the run, in canonical layout, and the name of its dtype."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Build(Request[Built]):
    """Build the model, with any weights.

    folder: the folder of the model files.
    options: keyword arguments for ``build``.
    onnx: the reference's ONNX export, or an ONNX file in its place; None when there is none.
    own_weights: whether the model keeps the weights of its file, which have names of their own.
    names: the framework's table of names.toml.
    stored: its table of the weights that the model stores otherwise (see weights.arrangement).
    inputs, outputs: name -> layout, in the order of the spec.
    mode: the mode in which the model will run; None: build it without the options of any mode.
    expected: canonical name -> shape of the reference's weights, for the messages about a model that has others.
    objective: the loss that the model is trained with; None: the mean cross-entropy of its only output.
    scalars: the outputs that have no axes.
    sizes: name of an input -> its size, for a model that has no weights before its first call; {}: it is not called.
    precision: in which the model computes in training; its weights stay in float32.
    file: the name of the model file, without ``.py``; "": that of the framework. table, function, project: as of ``Source``.
    cache: the pairs of the spec, for a file that keeps its own weights.
    disk: a folder in which the models that this process builds keep large parameters, so that the system can free the memory of
        those that are not in use; None: in memory.
    """

    folder: str
    options: Json
    onnx: str | None
    names: dict[str, str]
    inputs: dict[str, str | None]
    outputs: dict[str, str | None]
    mode: str | None = None
    expected: dict[str, tuple[int, ...]] = field(default_factory=dict)
    objective: Objective | None = None
    scalars: tuple[str, ...] = ()
    sizes: dict[str, InputSize] = field(default_factory=dict)
    precision: str = "float32"
    disk: str | None = None
    stored: Json = field(default_factory=dict)
    file: str = ""
    table: str = ""
    function: str = BUILD
    project: str = ""
    own_weights: bool = False
    cache: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Load(Request[str]):
    """Load the weights of an array file, and read them back out of the model. The reply is the digest of what was read back.

    buffers: those of Built of the reference, for the message about weights that do not fit the model.
    """

    path: str
    buffers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Digest(Request[str]):
    """Compute the digest of the model's weights, in the normal form of these fused parameters."""

    fused_parameters: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Save(Request[None]):
    """Write the model's weights, in canonical form, to an array file."""

    path: str


@dataclass(frozen=True)
class DeviceMemoryRead:
    """Memory of the device in MiB: peak of this framework, use by all processes, and total; None where it is not known."""

    peak_mib: float | None = None
    used_mib: float | None = None
    total_mib: float | None = None


@dataclass(frozen=True)
class DeviceMemory(Request[DeviceMemoryRead]):
    """Read the memory of the device."""


@dataclass(frozen=True)
class ReleaseMemory(Request[None]):
    """Give free memory back to the system, because other processes need it while this one waits."""


@dataclass(frozen=True)
class Stop(Request[None]):
    """End the process. It is the only request that gets no reply."""


# -- timing -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared:
    """The model is ready to be called.

    first_step_seconds: duration of making the callable and calling it once.
    second_step_seconds: duration of the second call.
    """

    first_step_seconds: float
    second_step_seconds: float


@dataclass(frozen=True)
class Prepare(Request[Prepared]):
    """Put the input cases on the device, make the callable of this mode, and time its first two calls.

    inputs: an array file.
    """

    inputs: str
    mode: str


@dataclass(frozen=True)
class Warmed:
    """The warm-up calls were made.

    calls: number of calls.
    seconds: duration of all calls.
    seconds_per_call: duration of the last call.
    """

    calls: int
    seconds: float
    seconds_per_call: float


@dataclass(frozen=True)
class Warm(Request[Warmed]):
    """Call at least ``calls`` times and for at least ``seconds``."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Timed:
    """A block was timed.

    seconds: duration of all calls of the block.
    unfinished_seconds: duration of computation that was not finished after ``wait``; None without ``keep``.
    """

    seconds: float
    unfinished_seconds: float | None = None


@dataclass(frozen=True)
class Block(Request[Timed]):
    """Time ``calls`` calls on one input case.

    keep: a file for the outputs of the last call; None: they are not kept.
    room: bytes of memory that reading the outputs may need.
    calls_between: whether to make as many calls again, and then to pause for as long as they took, between the two readings of
        the outputs. The processor's caches are then as cold for the second reading as for the first.
    """

    case: int
    calls: int
    keep: str | None = None
    room: int = 0
    calls_between: bool = False


@dataclass(frozen=True)
class PiecesTimed:
    """Pieces of a series were timed. seconds: of each piece."""

    seconds: tuple[float, ...]


@dataclass(frozen=True)
class Pieces(Request[PiecesTimed]):
    """Time ``count`` pieces of ``calls`` calls without a pause, on the input cases in turn."""

    calls: int
    count: int


@dataclass(frozen=True)
class CallOn(Request[None]):
    """Call the callable that is timed once on every case of other inputs, and write its outputs: "case/name" -> array.

    inputs, path: array files. The inputs may have other sizes than those that the callable was made with.
    """

    inputs: str
    path: str


@dataclass(frozen=True)
class GraphCount(Request[int | None]):
    """Count the graphs that the callable has made so far; None when its mode makes no graphs."""


@dataclass(frozen=True)
class Captured:
    """The capture of one untimed pass.

    records: one record for each call of a layer.
    kinds: canonical name of a captured layer -> its class.
    others: canonical names of layers that were not captured.
    channels_last: whether the framework keeps images as N,H,W,C.
    broken: why the pass ended early; "" when it did not.
    """

    records: tuple[LayerCall, ...]
    kinds: dict[str, str]
    others: tuple[str, ...]
    channels_last: bool
    broken: str


@dataclass(frozen=True)
class Capture(Request[Captured]):
    """Run one untimed pass on one case of these inputs, and write the inputs and outputs of every layer into a folder.

    wanted: canonical names of layers; None: every layer that contains no other layers.
    returned: an array file of outputs that calls of layers return in place of their own (see capture.returned_key); None: they
        return their own.
    first: (items of a batch, items to write): of an array whose first axis is the batch, only the first items are written.
        None: arrays are written whole.
    """

    inputs: str
    case: int
    folder: str
    wanted: tuple[str, ...] | None
    returned: str | None = None
    first: tuple[int, int] | None = None
