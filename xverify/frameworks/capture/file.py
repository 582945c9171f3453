"""Reads a capture, the file that ``xverify_recorder.py`` writes.

Every mistake in it is told in one line, because it comes from another machine, over a network.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from xverify import reading
from xverify.errors import UsageError, WeightsError, first_line
from xverify.frameworks.capture.xverify_recorder import FORMAT, LOWER
from xverify.frameworks.keras.base import canonical
from xverify.weights import safetensors
from xverify.weights.canonical import Array

FIELDS = (
    "format", "framework", "environment", "machine", "cases", "layers", "calls", "weights", "digests", "rank", "ranks", "note",
)  # fmt: skip
VERSIONS = ("torch", "jax", "flax", "keras", "tensorflow", "mlx", "onnxruntime", "numpy")  # of what may have computed
SETTINGS = {"tf32_matmul": "TF32 in matrix products", "tf32_cudnn": "TF32 in convolutions"}
Json = dict[str, Any]  # an object of JSON, which may have any values


@dataclass(frozen=True)
class Call:
    """One call of a layer. inputs, outputs: names of arrays. The rest is as of LayerCall."""

    case: int
    name: str
    call: int
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_dtype: str
    output_dtype: str


@dataclass(frozen=True)
class Capture:
    """A capture. manifest: what its header says. places: name of an array -> where it is in the file."""

    path: Path
    manifest: Mapping[str, Any]
    places: Mapping[str, safetensors.Place]

    def array(self, name: str) -> Array:
        """An array of the file. Raises UsageError where it is not what was written."""
        try:
            found = self.places[name].read(name)
        except (KeyError, OSError, WeightsError, ValueError) as error:
            raise UsageError(f"{self.path}: array {name} cannot be read: {first_line(error)}") from None
        if hashlib.blake2b(found.tobytes(), digest_size=16).hexdigest() != self.manifest["digests"].get(name):
            raise UsageError(f"{self.path}: array {name} is not what was recorded: the file was damaged, or changed")
        return found

    def check(self) -> None:
        """Read all arrays. Raises UsageError where one is not what was written."""
        for name in self.places:
            self.array(name)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of an array."""
        return self.places[name].shape

    @property
    def divided(self) -> Mapping[str, Any]:
        """How weights and values are divided among the processes of a run, as ``Recording`` takes it."""
        found: Mapping[str, Any] = self.manifest.get("divided") or {}
        return found

    @property
    def channels_last(self) -> bool:
        """Whether images are N,H,W,C."""
        return bool(self.manifest.get("channels_last", False))

    def canonical(self, array: Array, layout: str | None) -> Array:
        """An array with its axes as torch has them. layout: these axes, such as "NCHW"; None: they stay as they are."""
        return canonical(array, layout) if self.channels_last else array

    @property
    def graph(self) -> Any:
        """The graph of an ONNX file, as far as the layers are told by it; None where calls of layers were recorded."""
        found = self.manifest.get("graph")
        if found is None:
            return None
        nodes = [
            SimpleNamespace(name=name, op_type=kind, input=given, output=made)
            for name, kind, given, made in found["nodes"]
        ]
        weights, outputs = (
            [SimpleNamespace(name=name) for name in found[each]] for each in ("initializers", "outputs")
        )
        return SimpleNamespace(graph=SimpleNamespace(node=nodes, initializer=weights, output=outputs))

    def arrays(self, case: int, kind: str) -> dict[str, Array]:
        """The inputs or the outputs of a case. kind: "inputs" or "outputs"."""
        return {name: self.array(array) for name, array in self.manifest["cases"][case][kind].items()}

    def ordered(self, case: int, names: Sequence[str]) -> list[str]:
        """The arrays of the inputs of a case in the order of these names, or in their own where they have other names.

        Raises UsageError for another number of inputs.
        """
        found = self.manifest["cases"][case]["inputs"]
        if len(found) != len(names):
            raise UsageError(
                f"{self.path}: call {case} of the model has the inputs {', '.join(found)}, and the reference takes "
                f"{', '.join(names)}"
            )
        return [found[name] for name in names] if set(names) == set(found) else list(found.values())

    @property
    def cases(self) -> int:
        """The number of calls of the model."""
        return len(self.manifest["cases"])

    def alike(self) -> list[int]:
        """The calls of the model whose inputs have the shapes of those of the first."""
        shapes = [
            {name: self.shape(array) for name, array in case["inputs"].items()} for case in self.manifest["cases"]
        ]
        return [case for case, each in enumerate(shapes) if each == shapes[0]]

    @cached_property
    def calls(self) -> tuple[Call, ...]:
        """The calls of layers, in the order in which they began."""
        return tuple(
            Call(**{**each, "inputs": tuple(each["inputs"]), "outputs": tuple(each["outputs"])})
            for each in self.manifest["calls"]
        )

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name -> shape of every weight of the model."""
        return {name: tuple(each["shape"]) for name, each in self.manifest["weights"].items()}

    @property
    def keeps_weights(self) -> bool:
        """Whether the file has the weights, and not their digests alone."""
        weights = self.manifest["weights"].values()
        return bool(weights) and all("array" in each for each in weights)

    def lower(self) -> str:
        """The precision of what the model returned, or of its weights, where that is below float32; "" otherwise."""
        stored = self.manifest["environment"].get("weights", ())
        found = {case["dtypes"] for case in self.manifest["cases"]} | set(stored)
        return next((name for name in LOWER if name in found), "")

    def described(self) -> str:
        """Where it was captured, for the report."""
        machine, environment = self.manifest["machine"], self.manifest["environment"]
        device = environment.get("gpu") or machine.get("processor")
        version = ", ".join(f"{name} {environment[name]}" for name in VERSIONS if name in environment)
        where = [f"captured on {device or 'an unknown processor'} with {version}"] if device or version else []
        on = [
            f"{says} {'on' if environment[name] else 'off'}" for name, says in SETTINGS.items() if name in environment
        ]
        note = [self.manifest["note"]] if self.manifest["note"] else []
        return f"{self.path.name}: {', '.join([*where, *on, *note])}"


def read(path: Path) -> Capture:
    """Read the header of a capture. Raises UsageError with one line for a file that is none, or that is damaged."""
    wrong = reading.problem(path)
    if wrong:
        raise UsageError(f"{path}: {wrong}")
    try:
        places = safetensors.places(path)
        metadata = safetensors.metadata(path)
    except WeightsError as error:
        raise UsageError(str(error)) from None
    except Exception as error:  # the library has errors of its own for each kind of damage
        raise UsageError(
            f"{path}: no capture, or one that was cut off when it was written or copied: {first_line(error)}"
        ) from None
    if safetensors.CAPTURE not in metadata:
        raise UsageError(
            f"{path}: no capture: it has no {safetensors.CAPTURE} in its header. xverify judge --recorder FILE writes the file "
            "that records one"
        )
    try:
        manifest = json.loads(metadata[safetensors.CAPTURE])
    except ValueError as error:
        raise UsageError(f"{path}: the header of the capture is no JSON: {error}") from None
    try:
        _check(path, manifest, places)
    except (AttributeError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: the header of the capture is not as xverify_recorder.py writes it: {first_line(error)}"
        ) from None
    return Capture(path, manifest, places)


def _check(path: Path, manifest: Json, places: Mapping[str, safetensors.Place]) -> None:
    """Raise UsageError for a manifest that is incomplete, of another version, or that contradicts itself."""
    version = manifest.get("format")
    if version != FORMAT:
        raise UsageError(
            f"{path}: a capture of format {version}, and this xverify reads format {FORMAT}: record it again with the "
            "xverify_recorder.py that `xverify judge --recorder FILE` writes"
        )
    lacks = [each for each in FIELDS if each not in manifest]
    if lacks:
        raise UsageError(f"{path}: the header of the capture lacks {', '.join(lacks)}")
    kinds = ("inputs", "outputs", "values")
    named = [name for case in manifest["cases"] for kind in kinds for name in case.get(kind, {}).values()]
    named += [name for call in manifest["calls"] for name in (*call["inputs"], *call["outputs"])]
    absent = sorted(set(named) - set(places))
    if absent:
        raise UsageError(f"{path}: {len(absent)} arrays that it names are not in it, such as {absent[0]!r}")
    expected: dict[tuple[int, str], int] = {}
    earlier = 0
    for each in manifest["calls"]:
        key = each["case"], each["name"]
        number = expected.get(key, 0)
        if each["call"] != number or each["case"] < earlier or each["case"] >= len(manifest["cases"]):
            raise UsageError(
                f"{path}: the calls of layers are not in the order in which they were made: call {each['call']} of "
                f"{each['name']} in case {each['case']} stands where call {number} was expected"
            )
        expected[key], earlier = number + 1, each["case"]
