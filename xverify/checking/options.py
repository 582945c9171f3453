"""Every setting of a check, declared once. The command line and the signature of ``xverify.check`` are made from these fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .. import host
from ..errors import UsageError
from ..workload.declaration import declared, option
from ..workload.options import MOST_STEPS, NO_FILES, FilePath, reused
from ..workload.sizes import parse as parse_sizes

# The headings of the help, in order.
GROUPS = ("what to check", "inputs", "verdict", "timing", "machine", "output")
WHAT, INPUTS, VERDICT, TIMING, MACHINE, OUTPUT = GROUPS
LAYOUTS = ("same", "turned")


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    name, equals, sizes = text.rpartition("=")
    try:
        found = tuple(int(size) for size in sizes.split("x")) if sizes else ()
    except ValueError:
        equals = ""
    if not equals or not name or any(size < 1 for size in found):
        raise UsageError(f"--shape {text}: write NAME=SIZES, e.g. --shape x=1x3x224x224")
    return name, found


def _sizes(text: str) -> tuple[str, tuple[int, ...]]:
    return parse_sizes(text, "; the files to check stand before --sizes")


def _pair(flag: str, example: str, text: str) -> tuple[str, str]:
    name, equals, other = text.partition("=")
    if not equals or not name or not other:
        raise UsageError(f"{flag} {text}: write {example}")
    return name, other


def _map(text: str) -> tuple[str, str]:
    return _pair("--map", "REFERENCE=FILE, e.g. --map logits=output_0", text)


def _state(text: str) -> tuple[str, str]:
    return _pair(
        "--state", "OUT=IN, an output and the input of the next step that it is, e.g. --state h_out=h_in", text
    )


def _interval(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--input-range {text}: write LOW,HIGH, e.g. --input-range 0,1") from None
    if not low < high:
        raise UsageError(f"--input-range {text}: {low:g} is not below {high:g}")
    return low, high


@dataclass(frozen=True, kw_only=True)
class CheckSettings:
    """All settings of a check."""

    against: FilePath | None = option(
        None, "compare with this: another model file, recorded tensors (.npz, or a folder with input_0.pb and output_0.pb), a "
        "model folder or a name of the zoo, or code such as torch=model.py:build", group=WHAT, metavar="REFERENCE",
        unset="each file's own meaning in float64",
    )  # fmt: skip
    weights: FilePath | None = option(
        None, "the weights of a reference that is a model folder or code: .safetensors (of several: the "
        "index or folder) .npz .pt .pth .pkl .onnx; own: what its "
        "build() makes; probe: drawn from the seed", group=WHAT, metavar="FILE", path="either", instead=NO_FILES,
        unset="of a folder: the folder's, else drawn from the seed; of code: own",
    )  # fmt: skip
    on: str | None = option(
        None, "run the files on this runtime, e.g. openvino for .onnx, or on this version of it, e.g. onnxruntime==1.20.1, in an "
        "environment that is made where there is none; several give one row each", group=WHAT, metavar="LIST",
        unset="the format's own",
    )  # fmt: skip
    signature: str | None = option(
        None, "the signature of the file to check", group=WHAT, metavar="NAME", unset="the default one"
    )
    max_weights: float | None = reused("max_weights", group=WHAT)
    trust: bool = option(False, "also open files that can run code when they are opened", group=WHAT)
    shape: Mapping[str, tuple[int, ...]] | None = option(
        None, "the shape of an input whose sizes the file leaves open; may be repeated", group=INPUTS, metavar="NAME=SIZES",
        parse=_shape, repeatable=True,
    )  # fmt: skip
    sizes: Mapping[str, Sequence[int]] | None = option(
        None, "check every file at these sizes of axes that it leaves open, by their names; batch: also the first axis of all "
        "inputs, and INPUT:AXIS: an axis without a name", group=INPUTS, metavar="NAME=SIZES", parse=_sizes, repeatable=True,
        words=True, between=",", unset="one size, chosen",
    )  # fmt: skip
    inputs: FilePath | None = option(
        None, "arrays to use as inputs: NAME, or CASE/NAME for several cases; other inputs are drawn", group=INPUTS,
        metavar="FILE.npz", path="read",
    )  # fmt: skip
    input_range: tuple[float, float] | None = option(
        None, "the range of floating-point inputs", group=INPUTS, metavar="LOW,HIGH", parse=_interval, unset="standard normal"
    )  # fmt: skip
    layout: str | None = option(
        None, "same: images have their axes in the reference's order; turned: NHWC where the reference has NCHW, or the other "
        "way round", group=INPUTS, metavar="LAYOUT", choices=LAYOUTS, unset="found from the shapes",
    )  # fmt: skip
    map: Mapping[str, str] | None = option(
        None, "which input or output of the file belongs to one of the reference; may be repeated", group=INPUTS,
        metavar="REFERENCE=FILE", parse=_map, repeatable=True,
    )  # fmt: skip
    steps: int | None = option(
        None, "call the model N times, each time with the state of the call before; needs --state", group=INPUTS, metavar="N",
        least=2, most=MOST_STEPS, unset="independent input cases",
    )  # fmt: skip
    state: Mapping[str, str] | None = option(
        None, "the output of a step that is this input of the next one, with the reference's names; may be repeated",
        group=INPUTS, metavar="OUT=IN", parse=_state, repeatable=True,
    )  # fmt: skip
    seed: int = reused("seed", group=INPUTS, help="seed of the inputs and of drawn weights")
    accept: str | None = option(
        None, "conditions that decide instead of the verdict, e.g. 'top1>=0.99,sqnr>=30'", group=VERDICT, metavar="CONDITIONS"
    )  # fmt: skip
    strict: bool = reused("strict", group=VERDICT)
    require: float | None = reused("require", group=VERDICT)
    time: bool = option(
        False, "also time the files, after their verdicts and in alternation, and measure their memory", group=TIMING
    )
    effort: str | None = reused(
        "effort", group=TIMING, default=None, unset="quick",
        help="quick: one process run, no verdict on speed; standard: 6 to 12; rigorous: 12 to 20",
    )  # fmt: skip
    warmup: int | None = reused("warmup", group=TIMING)
    rerun: int | None = reused("rerun", group=TIMING)
    pin: Sequence[int] = reused("pin", group=TIMING, help="cores that the timed runtimes may use, e.g. 0,1")
    allocator: str | None = reused("allocator", group=TIMING, default=None, unset="keep")
    threads: int | None = reused("threads", group=MACHINE, help="threads of every runtime")
    timeout: float = option(
        600.0, "seconds that one step of a file may take", group=MACHINE, metavar="S", above=0, unit="seconds"
    )
    memory: float | None = reused("memory", group=MACHINE)
    max_seconds: float | None = reused("max_seconds", group=MACHINE)
    reproducer: FilePath | None = option(
        None, "write the smallest piece of a DIFFERENT file that fails by itself, a script and a bug report into this new folder",
        group=OUTPUT, metavar="DIR", path="replaced folder",
    )  # fmt: skip

    @property
    def thread_count(self) -> int:
        """Threads of every runtime."""
        return self.threads or len(self.pin) or host.cores()

    def check_timing(self) -> None:
        """Raise UsageError for a setting of the timing without --time."""
        for each in declared(type(self)):
            given = getattr(self, each.name)
            if (
                each.group == TIMING
                and each.name != "time"
                and not self.time
                and given is not None
                and given not in ((), [])
            ):
                raise UsageError(f"{each.flag} says how the files are timed; add --time")


@dataclass(frozen=True, kw_only=True)
class CheckDisplay:
    """The options that only the command line has."""

    json: FilePath | None = option(None, "write the result file", group=OUTPUT, metavar="FILE", path="written")
    force: bool = reused("force", group=OUTPUT)
    nodes: bool = option(False, "also print the verdict on every node", group=OUTPUT)
    details: bool = option(
        False, "also print how inputs and outputs were matched, and every sentence on what was checked", group=OUTPUT
    )
    quiet: bool = option(False, "print only the line of the verdict, and no progress", group=OUTPUT)
