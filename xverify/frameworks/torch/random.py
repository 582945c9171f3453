"""Finds the operation of a model that draws random numbers, by the state of torch's generator before and after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from xverify.framework.generators import line_in


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
                found.append(function.__name__ + line_in(folder))
            return result

    with torch.inference_mode(), Watch():
        model(*inputs)
    return "".join(found)
