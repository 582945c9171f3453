"""Passes of the reference in which given masks take the place of what its dropout layers draw."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..framework.dropout import mask_key
from ..weights.canonical import Array
from .replaced import hooked


@contextmanager
def masked(model: nn.Module, masks: Mapping[str, Array]) -> Iterator[None]:
    """A context in which layers of a model multiply their outputs by masks. Dropout must be disabled.

    masks: ``mask_key`` -> mask.
    """
    calls: Counter[str] = Counter()

    def begin(*_: Any) -> None:
        calls.clear()

    def multiply(name: str) -> Callable[..., Tensor | None]:
        def hook(layer: nn.Module, args: Any, output: Tensor) -> Tensor | None:
            mask = masks.get(mask_key(name, calls[name]))
            calls[name] += 1
            return None if mask is None else output * torch.tensor(mask, dtype=output.dtype)

        return hook

    named = {key.rpartition("/")[0] for key in masks}
    hooks = [model.register_forward_pre_hook(begin)]
    hooks += [layer.register_forward_hook(multiply(name)) for name, layer in model.named_modules() if name in named]
    with hooked(hooks):
        yield
