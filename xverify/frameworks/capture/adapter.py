"""A capture as a subject: what a model computed on another machine, where ``xverify_recorder.py`` recorded it.

Nothing is computed here. A call returns the outputs that were recorded for its inputs, and a capture of layers the recorded calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Failed, OtherWeights, Unsupported, UsageError
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import Recorder, first_items
from xverify.framework.runner import OnArrays
from xverify.framework.structures import map_leaves
from xverify.frameworks.capture import file
from xverify.frameworks.keras.base import canonical, native
from xverify.frameworks.onnx.base import OnExport
from xverify.weights.canonical import Streamed

MOST_LISTED = 3  # names in a message


@dataclass
class Recorded:
    """A capture as a model. weights: those that were given, which have the digests of the capture; {} before."""

    capture: file.Capture
    weights: Mapping[str, Array] = field(default_factory=dict)


class Given(Streamed):
    """Weights of which the shapes alone are known, before they are given."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.names = self.shapes = shapes

    def __getitem__(self, name: str) -> Array:
        return np.zeros(self.shapes[name], np.float32)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.shapes[name]


def recorded(framework: Adapter, model: Recorded, example: tuple[Any, ...]) -> Any:
    """Return what was recorded for the same inputs."""
    return lambda *inputs: _outputs(model.capture, framework.case(model.capture, inputs))


class Adapter(OnArrays, Framework):
    name = "capture"
    needs: ClassVar[Mapping[str, str]] = {}
    extra = "torch"  # in which the reference is
    suffix = ".safetensors"
    modes = {"recorded": recorded}
    implicit_mode = "recorded"
    captured_mode = "recorded"
    streams_weights = True
    shows_every_case = True

    @classmethod
    def has_own_weights(cls) -> bool:
        return cls.path is not None and not file.read(cls.path).manifest["weights"]

    def __init__(self, threads: int, device: str) -> None:
        self.threads = threads

    def define(self, source: Source, options: Mapping[str, Any]) -> Recorded:
        try:
            capture = file.read(source.folder / f"{source.file}{self.suffix}")
        except UsageError as error:
            raise Failed(str(error)) from None
        if capture.lower():
            raise Unsupported(
                f"the model was recorded in {capture.lower()}, and a forward pass is judged in float32: record it with weights in "
                "float32 and without autocast. What a device rounds by itself, such as TF32, is recognised"
            )
        self.channels_last = capture.channels_last
        return Recorded(capture)

    def to_native(self, array: Array, layout: str | None) -> Any:
        return native(array, layout) if self.channels_last else super().to_native(array, layout)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(np.asarray(tensor), layout) if self.channels_last else np.asarray(tensor)

    def load_weights(self, model: Recorded, arrays: Mapping[str, Array]) -> None:
        """Compare the weights with the digests of those that the model had. Raises OtherWeights where one differs."""
        known, wrong = model.capture.manifest["weights"], []
        for name in arrays:
            parts, pieces = known[name].get("parts", [known[name]]), [arrays[name]]
            if len(parts) > 1:  # a weight that was divided among processes
                dimension = known[name]["dimension"]
                ends = np.cumsum([part["shape"][dimension] for part in parts])[:-1]
                pieces = np.split(np.asarray(arrays[name]), ends, dimension)
            data = [np.ascontiguousarray(piece, np.float32).tobytes() for piece in pieces]
            if [hashlib.sha256(each).hexdigest() for each in data] != [part["sha256"] for part in parts]:
                wrong.append(name)
        if wrong:
            more = f" and {len(wrong) - MOST_LISTED} more" * (len(wrong) > MOST_LISTED)
            raise OtherWeights(
                f"the capture was made with other weights: {len(wrong)} of {len(known)} differ, {', '.join(wrong[:MOST_LISTED])}"
                f"{more}; give those that the model had, with --weights FILE"
            )
        model.weights = arrays

    def save_weights(self, model: Recorded) -> dict[str, Array]:
        return {name: np.array(array, np.float32) for name, array in self.weights_of(model).items()}

    def weights_of(self, model: Recorded) -> Mapping[str, Array]:
        return model.weights or Given(model.capture.shapes)

    def layers(self, model: Recorded) -> dict[str, list[Any]]:
        if model.capture.graph is not None:
            return OfGraph(model.capture).layers(model.capture.graph)
        return {name: [type(kind, (), {})()] for name, kind in model.capture.manifest["layers"].items()}

    def capture(self, model: Recorded, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        """Give the recorder the calls that were recorded. inputs: of a case, or the first items of it."""
        capture = model.capture
        case = self.case(capture, inputs)
        first = _first(capture.ordered(case, self.setup.inputs), capture, inputs)
        if capture.graph is not None:
            return OfGraph(capture, case, first).capture(capture.graph, inputs, names, recorder)
        if names and not any(call.case == case for call in capture.calls):
            raise Unsupported(f"no layers were recorded in call {case} of the model")
        for call in capture.calls:
            if call.case != case or call.name not in names:
                continue
            record = recorder.begin(names[call.name], [first_items(capture.array(each), first) for each in call.inputs])
            record.input_dtype = call.input_dtype
            recorder.end(record, [first_items(capture.array(each), first) for each in call.outputs])
            record.output_dtype = call.output_dtype
        return map_leaves(_outputs(capture, case), lambda array: first_items(array, first))

    def case(self, capture: file.Capture, inputs: tuple[Any, ...]) -> int:
        """The case that was recorded with these inputs, or with these as its first items. Raises Failed without one.

        Where several were, it is the one that is asked for.
        """
        asked = capture.alike()[self.case_asked : self.case_asked + 1]
        for case in [*asked, *range(capture.cases)]:
            names = capture.ordered(case, self.setup.inputs)
            if all(_begins(capture.array(name), array) for name, array in zip(names, inputs)):
                return case
        raise Failed(
            f"{capture.path.name} has no call with these inputs, which are not those that were recorded: xverify judge gives the "
            "reference the recorded ones"
        )

    def environment(self) -> dict[str, object]:
        return {"capture": "recorded elsewhere"}


class OfGraph(OnExport):
    """The layers of an ONNX graph, by the values that were recorded of its nodes. case, first: see ``Adapter.capture``."""

    name = "capture"

    def __init__(self, read: file.Capture, case: int = 0, first: tuple[int, int] | None = None) -> None:
        self.read, self.case, self.first = read, case, first

    def feed(self, model: Any, inputs: Sequence[Array]) -> dict[str, Array]:
        return self._items(self.read.manifest["cases"][self.case]["inputs"])

    def returned(self, model: Any, inputs: Sequence[Array]) -> list[str]:
        return [each.name for each in model.graph.output]

    def expose(self, model: Any, feed: Mapping[str, Array], tensors: list[str]) -> dict[str, Array]:
        values = self.read.manifest["cases"][self.case].get("values", {})
        return self._items({name: values[name] for name in tensors if name in values})

    def _items(self, names: Mapping[str, str]) -> dict[str, Array]:
        return {name: first_items(self.read.array(array), self.first) for name, array in names.items()}


def _first(names: Sequence[str], capture: file.Capture, inputs: tuple[Any, ...]) -> tuple[int, int] | None:
    """(items of the recorded batch, items of these inputs); None where they are the same."""
    shapes = [(capture.shape(name), array.shape) for name, array in zip(names, inputs)]
    return next(((whole[0], part[0]) for whole, part in shapes if whole and whole[0] != part[0]), None)


def _begins(found: Array, array: Array) -> bool:
    """Whether an array begins with these items."""
    if found.ndim != array.ndim or found.shape[1:] != array.shape[1:] or found.shape[:1] < array.shape[:1]:
        return False
    return (found[: len(array)] if found.ndim else found).astype(array.dtype).tobytes() == array.tobytes()


def _outputs(capture: file.Capture, case: int) -> Any:
    """What the model returned, with lists in the place of tuples."""
    return _nested(capture.arrays(case, "outputs"))


def _nested(found: Mapping[str, Any]) -> Any:
    """A nested structure. found: path -> value, as ``structures.by_path`` gives them."""
    if list(found) == [""]:
        return found[""]
    inner: dict[str, dict[str, Any]] = {}
    for path, value in found.items():
        key, _, rest = path.partition(".")
        inner.setdefault(key, {})[rest] = value
    values = {key: _nested(each) for key, each in inner.items()}
    return list(values.values()) if all(key.isdecimal() for key in values) else values
