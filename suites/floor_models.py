"""The models of the suite of floors: quick ones of the zoo, and tests/ports, in TensorFlow and ONNX Runtime beside torch.

A fault multiplies one channel of what one layer of the Keras port returns by 1 + size. So its relative error in the values that it
changes is its size, and the detection limit is the one that the report states for this layer.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import ports
from floor_files import Answer

from xverify import run
from xverify.results.layers import LayerError
from xverify.results.records import Row

ZOO = (
    "mlp",
    "dynamic-loop",
    "lstm-cell",
    "gpt-tiny",
    "vit-tiny",
    "unet-small",
    "mobilenet-v3-small",
    "resnet18",
    "resnet50-cifar10",
)
MODELS = Path(__file__).parents[1] / "models"
NO_LAYER = "no layer"  # the answer for a port that has no layer in which a fault could be planted
SHARE = 5  # a graph has so many times as many right runs
SIZES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7)
BATCHES = (2, 1, 5)
SUBJECTS = ("torch:eager", "tensorflow:eager", "onnxruntime")
# The first 1, middle or last layer with weights: they stand before and behind all kinds of layers.
PLACES = (0.0, 0.5, 1.0)
PLANTED = """

_right = build


def build(*arguments, **options):
    import keras
    import numpy

    model = _right(*arguments, **options)
    found = [each for each in model._flatten_layers() if type(each).__name__ in KINDS and hasattr(each, "kernel")]
    layer = found[round(PLACE * (len(found) - 1))]
    call, factors = layer.call, numpy.ones(layer.kernel.shape[-1], "float32")
    factors[len(factors) // 2] += SIZE
    with open(WHERE, "w") as file:
        file.write(layer.name)
    layer.call = lambda *args, **more: call(*args, **more) * factors
    return model
"""
KINDS = ("Dense", "Conv1D", "Conv2D", "Conv3D", "Conv2d")


@dataclass(frozen=True)
class Scaled:
    """One channel of a layer times 1 + size. place: 0.0 for the first layer with a kernel, 1.0 for the last."""

    size: float
    place: float

    def __str__(self) -> str:
        return f"a channel x (1 + {self.size:.0e}) in the layer at {self.place:.0%}"

    def plant(self, file: Path) -> None:
        """Add the fault to a port."""
        values = {"KINDS": KINDS, "PLACE": self.place, "SIZE": self.size, "WHERE": str(file.with_name("planted"))}
        text = PLANTED
        for name, value in values.items():
            text = text.replace(name, repr(value))
        file.write_text(file.read_text() + text)


def folder_of(name: str) -> Path:
    """The model folder of a name of the zoo, or of a port."""
    return MODELS / name if name in ZOO else ports.PORTS / name


def names() -> list[str]:
    """All models that can run here. Models of the zoo come first."""
    return [*ZOO, *(port.folder.name for port in ports.ports() if "tensorflow" in port.files and not port.lacks())]


def faults(name: str) -> list[Scaled]:
    """The faults of a model; none where its port stands in another folder."""
    if not (folder_of(name) / "tensorflow.py").is_file():
        return []
    return [Scaled(size, PLACES[number % len(PLACES)]) for number, size in enumerate(SIZES)]


def rows(model: str | Path, subjects: Sequence[str], **settings: Any) -> dict[str, Row]:
    """Subject -> its row."""
    return {
        row.subject: row for row in run(model, list(subjects), no_timing=True, cases=2, timeout=600.0, **settings).rows
    }


def right_run(name: str, seed: int, _: Path) -> tuple[bool, Answer, str]:
    """(whether it passes, the answer, the conditions) of a model as it is, with weights, inputs, batch and threads of a seed."""
    batch, threads = BATCHES[seed % len(BATCHES)], 1 + seed % 2
    found = rows(name if name in ZOO else folder_of(name), SUBJECTS, seed=seed, batch=batch, threads=threads)
    drift = {} if name in ZOO else next(port.drift for port in ports.ports() if port.folder.name == name)
    verdicts = {
        subject: str(row.error.verdict.value) if row.error else str(row.status) for subject, row in found.items()
    }
    reasons = {subject: (row.error.reason if row.error else row.reason) or "" for subject, row in found.items()}
    limit = max((row.error.detection_limit or 0.0 for row in found.values() if row.error), default=None)
    passing = {
        subject: {"IDENTICAL", "EQUAL", *(["DRIFT"] if subject.partition(":")[0] in drift else [])} for subject in found
    }
    passed = all(verdict in passing[subject] or verdict == "unsupported" for subject, verdict in verdicts.items())
    return passed, Answer(verdicts, reasons, (), limit), f"seed {seed}, batch {batch}, {threads} threads"


def faulty_run(name: str, fault: Scaled, _: int, space: Path) -> tuple[Answer, list[tuple[float, float]]]:
    """The answer to a port with a fault, and its relative error beside the detection limit of the layer that it is in."""
    folder = space / f"{name}-{fault.size}"
    shutil.copytree(folder_of(name), folder, dirs_exist_ok=True)
    fault.plant(folder / "tensorflow.py")
    row = rows(folder, SUBJECTS[:2])["tensorflow:eager"]
    verdict = str(row.error.verdict.value) if row.error else str(row.status)
    answer = Answer({"conversion": verdict}, {"conversion": (row.error.reason if row.error else row.reason) or ""})
    size = float(np.float32(1) + np.float32(fault.size)) - 1
    layers = row.error.layers.layers if row.error and row.error.layers else ()
    place = folder / "planted"
    if not place.is_file():
        return Answer({"conversion": NO_LAYER}, answer.reasons), []
    return answer, [(size, limit_of(place.read_text(), layers))]


def limit_of(name: str, layers: Sequence[LayerError]) -> float:
    """The detection limit of a layer of this name; where none has it, the largest of all layers of the kinds with faults."""
    mine = [layer for layer in layers if layer.layer == name or layer.layer.endswith(f".{name}")]
    of_kind = [layer for layer in layers if layer.kind in ("Linear", "Conv1d", "Conv2d", "Conv3d")]
    known = [layer.detection_limit for layer in mine or of_kind if layer.detection_limit is not None]
    return max(known, default=math.inf)
