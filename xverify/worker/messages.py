"""What every worker can be asked, and what it answers: one frozen dataclass a message.

``class Build(Request[Built])`` says that ``Build`` is answered by ``Built``. Arrays travel in files, which messages name by
their paths. ``messages_reference`` and ``messages_training`` hold the other messages; ``codec`` writes them as lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..framework.capture import LayerCall
from .codec import Reply, Request

Json = dict[str, Any]  # an adapter's environment and a model's options hold whatever JSON can


@dataclass(frozen=True)
class Done(Reply):
    """It is done, and there is nothing more to say."""


# -- the process and its model ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Started(Reply):
    """The framework is imported.

    seconds: of the import. environment: versions, threads and whatever else changes numbers or speed.
    """

    seconds: float
    environment: Json


@dataclass(frozen=True)
class Start(Request[Started]):
    """Import the framework.

    framework: the adapter's name. threads: that the framework may use. device: "cpu", or the device's name.
    """

    framework: str
    threads: int
    device: str


@dataclass(frozen=True)
class Built(Reply):
    """The model is built.

    seconds: of the build. shapes: canonical name of a weight -> its shape. fused_parameters: canonical name -> the weights
    whose sum the framework stores under it.
    """

    seconds: float
    shapes: dict[str, tuple[int, ...]]
    fused_parameters: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Build(Request[Built]):
    """Build the model, with any weights.

    folder: of the model's framework files. options: of its ``build``. onnx: the reference's export, where there is one.
    names: the framework's table of names.toml. inputs, outputs: name -> layout, in the order of the spec.
    mode: the mode that it will run in; None: the build that has no options of a mode.
    """

    folder: str
    options: Json
    onnx: str | None
    names: dict[str, str]
    inputs: dict[str, str | None]
    outputs: dict[str, str | None]
    mode: str | None = None


@dataclass(frozen=True)
class Digested(Reply):
    """digest: of the weights as they were read back out of the model."""

    digest: str


@dataclass(frozen=True)
class Load(Request[Digested]):
    """Load the weights of an array file, and read them back out of the model."""

    path: str


@dataclass(frozen=True)
class Digest(Request[Digested]):
    """Read the weights out of the model, in the normal form of these fused parameters."""

    fused_parameters: dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Save(Request[Done]):
    """Write the model's weights, in canonical form, to an array file."""

    path: str


@dataclass(frozen=True)
class DeviceMemoryRead(Reply):
    """MiB of the device: this framework's peak, what all processes use, and the total; None where it is not known."""

    peak_mib: float | None = None
    used_mib: float | None = None
    total_mib: float | None = None


@dataclass(frozen=True)
class DeviceMemory(Request[DeviceMemoryRead]):
    """Read the memory of the device."""


@dataclass(frozen=True)
class ReleaseMemory(Request[Done]):
    """Give free memory back to the system, which other processes need while this one waits."""


@dataclass(frozen=True)
class Stop(Request[Done]):
    """End the process. It is the only request that gets no reply."""


# -- timing -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Prepared(Reply):
    """first_step_seconds: of making the callable and its first call. second_step_seconds: of the call after it."""

    first_step_seconds: float
    second_step_seconds: float


@dataclass(frozen=True)
class Prepare(Request[Prepared]):
    """Put the input cases on the device, make the callable of this mode, and call it twice, each time on the clock."""

    inputs: str
    mode: str


@dataclass(frozen=True)
class Warmed(Reply):
    """calls: how many were made. seconds: of all of them. seconds_per_call: of the last one."""

    calls: int
    seconds: float
    seconds_per_call: float


@dataclass(frozen=True)
class Warm(Request[Warmed]):
    """Call at least ``calls`` times and for at least ``seconds``."""

    calls: int
    seconds: float


@dataclass(frozen=True)
class Timed(Reply):
    """seconds: of all calls of the block. unfinished_seconds: of computation that ``wait`` left undone; None without ``keep``."""

    seconds: float
    unfinished_seconds: float | None = None


@dataclass(frozen=True)
class Block(Request[Timed]):
    """Time ``calls`` calls on one input case.

    keep: a file for the outputs of the last call; None: they are not kept. room: bytes that reading the outputs may need.
    """

    case: int
    calls: int
    keep: str | None = None
    room: int = 0


@dataclass(frozen=True)
class GraphsCounted(Reply):
    """graph_count: of the graphs that the callable has made so far; None when its mode makes none."""

    graph_count: int | None


@dataclass(frozen=True)
class GraphCount(Request[GraphsCounted]):
    """Count the graphs that the callable has made so far."""


@dataclass(frozen=True)
class Captured(Reply):
    """What one untimed pass wrote down.

    records: one a call of a layer. kinds: canonical name of a captured layer -> its class. others: layers that were not
    captured. channels_last: whether the framework keeps images as N,H,W,C. broken: why the pass ended early, or "".
    """

    records: tuple[LayerCall, ...]
    kinds: dict[str, str]
    others: tuple[str, ...]
    channels_last: bool
    broken: str


@dataclass(frozen=True)
class Capture(Request[Captured]):
    """Run one untimed pass on this case of these inputs, and write what every layer takes and gives into a folder.

    wanted: canonical names of layers; None: every layer that holds no others.
    """

    inputs: str
    case: int
    folder: str
    wanted: tuple[str, ...] | None
