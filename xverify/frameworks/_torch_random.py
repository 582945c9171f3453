"""Finds the operation of a model that draws random numbers, by the state of torch's generator before and after it."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode


def random_operation(model: nn.Module, inputs: tuple[Any, ...], folder: Path) -> str:
    """The first operation that draws random numbers, with its place in the model's file; "" when none does.

    folder: of the model's file.
    """
    found = list[str]()

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before = torch.get_rng_state()
            result = function(*args, **(kwargs or {}))
            if not found and not torch.equal(before, torch.get_rng_state()):
                found.append(function.__name__ + _line_in(folder))
            return result

    with torch.inference_mode(), Watch():
        model(*inputs)
    return "".join(found)


def _line_in(folder: Path) -> str:
    """The innermost line of a file in this folder that is being executed, as " in torch.py, line 12"; "" when there is none."""
    for frame in reversed(traceback.extract_stack()):
        if Path(frame.filename).is_relative_to(folder):
            return f" in {Path(frame.filename).relative_to(folder)}, line {frame.lineno}"
    return ""
