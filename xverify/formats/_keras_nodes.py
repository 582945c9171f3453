"""The layers of a Keras file, with the values that it computes at them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats._keras_file import KerasFile

_IDLE = ("name", "trainable", "dtype")  # settings that change no value


class _Recorder:
    """Gets every call of a layer or operation that calls no other one.

    A layer whose parts are given values that no call returns, such as the steps of a recurrent layer, is a call by itself.
    """

    def __init__(self, names: dict[int, str], values: dict[str, Array], weights: Mapping[int, str]) -> None:
        self.names, self.values, self.weights = names, values, weights
        self.kept: list[Any] = []  # tensors, so that their identities stay theirs
        self.nodes: list[FileNode] = []

    def follows(self, begin: int, returned: Any) -> bool:
        """Whether the calls from this one on are given values that are known, and return what the layer around them returns."""
        import keras

        weights = set(self.weights.values())
        known = all(set(node.inputs) - weights for node in self.nodes[begin:])
        return known and all(id(each) in self.names for each in keras.tree.flatten(returned) if hasattr(each, "numpy"))

    def note(self, operation: Any, given: Any, returned: Any, begin: int) -> None:
        """Note one call, in the place of those from this one on."""
        import keras

        replaced = {name for node in self.nodes[begin:] for name in node.outputs}
        del self.nodes[begin:]
        inputs = [self.names[id(each)] for each in keras.tree.flatten(given) if id(each) in self.names]
        name = str(getattr(operation, "path", "") or operation.name)
        inputs += [self.weights[id(each)] for each in getattr(operation, "weights", ()) if id(each) in self.weights]
        outputs = []
        for each in keras.tree.flatten(returned):
            if hasattr(each, "numpy") and self.names.get(id(each)) in replaced:
                outputs.append(self.names[id(each)])
            elif hasattr(each, "numpy") and id(each) not in self.names:
                own = f"{name}:{len(self.values)}"
                self.names[id(each)], self.values[own] = own, np.array(each.numpy())
                self.kept.append(each)
                outputs.append(own)
        if outputs:
            kind = type(operation).__name__
            self.nodes.append(FileNode(name, kind, tuple(inputs), tuple(outputs), _settings(operation)))


def traced(framework: KerasFile, model: Any, inputs: Mapping[str, Any], outputs: list[str]) -> Traced:
    """Compute one case eagerly, and return the calls of all layers and operations with all values."""
    values = {name: np.array(value.numpy()) for name, value in inputs.items()}
    weights = {id(each): each.path for each in model.weights}
    values.update({each.path: np.array(each.numpy()) for each in model.weights})
    recorder = _Recorder({id(value): name for name, value in inputs.items()}, values, weights)
    with _noted(recorder):
        found = framework.forward(model)(*inputs.values())
    results = {recorder.names.get(id(each), ""): name for each, name in zip(found, outputs)}
    nodes = []
    for node in recorder.nodes:
        given, returned = (tuple(results.get(each, each) for each in part) for part in (node.inputs, node.outputs))
        nodes.append(FileNode(node.name, node.kind, given, returned, node.settings))
    renamed = {results.get(name, name): value for name, value in values.items()}
    return Traced(FileGraph(tuple(nodes), tuple(inputs), tuple(outputs)), renamed)


@contextmanager
def _noted(recorder: _Recorder) -> Iterator[None]:
    """Within the ``with`` statement, every call of an operation that calls no other one is noted."""
    import keras

    depth: list[int] = []  # how many calls were noted when each call that goes on began
    kinds = [keras.Operation, keras.Layer]
    before = [kind.__call__ for kind in kinds]

    def wrapped(original: Any) -> Any:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            if depth and depth[-1] == id(self):  # a layer calls the method of its base class
                return original(self, *given, **named)
            noted = len(recorder.nodes)
            depth.append(id(self))
            try:
                returned = original(self, *given, **named)
            finally:
                depth.pop()
            whole = len(recorder.nodes) == noted
            if whole or not (isinstance(self, keras.Model) or recorder.follows(noted, returned)):
                recorder.note(self, (given, named), returned, noted)
            return returned

        return call

    try:
        for kind, original in zip(kinds, before):
            kind.__call__ = wrapped(original)
        yield
    finally:
        for kind, original in zip(kinds, before):
            kind.__call__ = original


def _settings(operation: Any) -> dict[str, str]:
    try:
        config = operation.get_config()
    except (NotImplementedError, TypeError, ValueError, AttributeError):
        config = {name: value for name, value in vars(operation).items() if not name.startswith("_")}
    plain = ((name, value) for name, value in config.items() if name not in _IDLE and "initializer" not in name)
    return settings((name, value) for name, value in plain if value is not None)
