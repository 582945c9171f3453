"""Tells the inputs and the operations of a reference for which a model folder is written."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from ..errors import Failed
from ..framework.outline import Outlined
from ..framework.structures import is_tensor
from ..messages.outline import Example, InputsRead, Outline, ReadInputs
from ..workload.code import make
from .handlers import Group


class OutlineWork(Group):
    """Handlers of requests of ``xverify init``."""

    def read_inputs(self, request: ReadInputs) -> InputsRead:
        """Read the example inputs of the file, and the annotations of the model."""
        annotated = _annotated(self.state.model)
        if not request.name:
            return InputsRead(annotated=annotated)
        found = make(request.file, request.name, request.project)
        if isinstance(found, Mapping):
            values = list(found.items())
        else:
            values = [("", each) for each in (found if isinstance(found, (tuple, list)) else [found])]
        return InputsRead(tuple(self._example(request.name, name, value) for name, value in values), annotated)

    def _example(self, source: str, name: str, value: Any) -> Example:
        if not is_tensor(value):
            raise Failed(f"{source} gives a {type(value).__name__}: it must give tensors, in a tuple or by name")
        array = np.asarray(self.state.runner.to_numpy(value, None))
        if array.dtype.kind == "f" or not array.size:
            return Example(name, array.shape, array.dtype.name)
        return Example(name, array.shape, array.dtype.name, int(array.min()), int(array.max()))

    def outline(self, request: Outline) -> Outlined:
        """Tell the operations of the model."""
        state = self.state
        with state.runner.inference():
            return state.framework.outline(state.model, state.native_cases(request.inputs)[0])


def _annotated(model: Any) -> dict[str, str]:
    """Parameter of ``forward`` -> the text in its annotation; none where the annotations cannot be read."""
    try:
        hints = typing.get_type_hints(model.forward, include_extras=True)
    except Exception:  # annotations are code of the user
        return {}
    found = {}
    for name, hint in hints.items():
        if typing.get_origin(hint) is Annotated:
            texts = [each for each in hint.__metadata__ if isinstance(each, str)]
            found.update({name: texts[0]} if texts and name != "return" else {})
    return found
