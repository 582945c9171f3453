"""Every setting of a conversion, declared once. Settings of the check that follows are those of ``xverify check``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..checking.options import INPUTS, WHAT, CheckSettings
from ..framework.converter import EXPORTERS, QUANTIZATIONS, files
from ..workload.declaration import Option, declared, option
from ..workload.options import NO_FILES, FilePath, reused

SHAPE = next(each for each in declared(CheckSettings) if each.name == "shape")
# The settings of ``xverify check`` that are handed on to it.
HANDED_ON = (
    "on", "trust", "max_weights", "seed", "accept", "strict", "require", "time", "effort", "warmup", "rerun", "pin", "allocator",
    "threads", "timeout", "memory", "max_seconds", "reproducer",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ConvertSettings:
    """The settings that only a conversion has."""

    to: str | None = option(
        None, f"one of: {', '.join(files())}", group=WHAT, metavar="FORMAT", choices=tuple(files()),
        unset="told by the suffix of OUT",
    )  # fmt: skip
    quantize: str | None = option(
        None, "int8: weights and activations in 8 bits; float16: weights in 16 bits", group=WHAT, metavar="PRECISION",
        choices=QUANTIZATIONS, unset="float32",
    )  # fmt: skip
    keep: str | None = option(
        None, "layers that stay in float32: names, with commas between; auto: the fewest with which the conditions of "
        "--accept hold; ONNX only", group=WHAT, metavar="LAYERS", unset="none",
    )  # fmt: skip
    exporter: str = option(
        EXPORTERS[0], f"torch's exporter of ONNX, one of: {', '.join(EXPORTERS)}", group=WHAT, metavar="NAME",
        choices=EXPORTERS,
    )  # fmt: skip
    weights: FilePath | None = option(
        None, "trained weights: .safetensors (of several: the index or folder) .npz .pt .pth .pkl .onnx; own: what build() makes; "
        "probe: drawn from the seed",
        group=WHAT, metavar="FILE", path="either", instead=NO_FILES, unset="the folder's, else own",
    )  # fmt: skip
    force: bool = reused(
        "force", help="replace OUT when it exists, and a result file that xverify did not write", group=WHAT
    )
    batch: int | None = reused(
        "batch", group=INPUTS, help="items in a call, which are fixed in most formats", parse=None
    )
    shape: Mapping[str, tuple[int, ...]] | None = option(
        None, "the shape of an input, batch included; may be repeated", group=INPUTS, metavar=SHAPE.metavar,
        parse=SHAPE.parse, repeatable=True, unset="as in spec.py",
    )  # fmt: skip
    cases: int = reused("cases", group=INPUTS, help="input cases: for the check, and for the calibration of int8")


def handed_on() -> tuple[Option, ...]:
    """The options of the check that follows."""
    return tuple(each for each in declared(CheckSettings) if each.name in HANDED_ON)
