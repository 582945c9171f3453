"""Finds the operations of torch that draw random numbers, by the state of torch's generator before and after each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from xverify.framework.generators import Noted, line_in


def random_operation(model: nn.Module, inputs: tuple[Any, ...], folder: Path) -> str:
    """The first operation that draws random numbers, with its place in the model's file; "" when none does.

    folder: of the model's file.
    """
    found = list[str]()
    with torch.inference_mode(), watched_draws(lambda name: found.append(name + line_in(folder))):
        model(*inputs)
    return found[0] if found else ""


@contextmanager
def watched_draws(note: Noted) -> Iterator[None]:
    """Within the context, ``note`` is told the name of every operation that draws from a generator of torch."""

    class Watch(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            before, given = torch.get_rng_state(), kwargs or {}
            result = function(*args, **given)
            if given.get("generator") is not None or not torch.equal(before, torch.get_rng_state()):
                note(function.__name__)
            return result

    with Watch():
        yield
