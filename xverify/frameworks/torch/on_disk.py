"""Large parameters of torch modules in files instead of memory.

A reference is in memory twice, in float32 and in float64. The pages of a file need not stay in memory: the system reads them
again when they are used, so that the replay of a model of which only a few layers are used at a time needs the memory of these.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from xverify.framework.adapter import IN_MEMORY

SMALL = 2**20  # bytes; smaller parameters stay in memory
PLACED = "_placed"  # attribute of a parameter that was taken: its dtype at that time


class OnDisk:
    """Moves the parameters of one model to files of a folder. The first IN_MEMORY bytes stay, so that most models have no files.

    When the disk is full, the other parameters stay in memory, too.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.remaining = folder, IN_MEMORY

    def take(self, parameter: Tensor) -> None:
        """Move a parameter, which stays the same object."""
        size = parameter.numel() * parameter.element_size()
        if size < SMALL or parameter.device.type != "cpu" or getattr(parameter, PLACED, None) == parameter.dtype:
            return
        setattr(parameter, PLACED, parameter.dtype)
        if self.remaining >= size:
            self.remaining -= size
            return
        try:
            stored = self._empty(parameter, size)
        except OSError:  # the disk is full
            return
        stored.copy_(parameter.data)
        parameter.data = stored

    def _empty(self, parameter: Tensor, size: int) -> Tensor:
        handle, name = tempfile.mkstemp(".parameter", dir=self.folder)
        try:
            # A full disk is an error here, and would end the process later. Not every system can reserve space.
            os.posix_fallocate(handle, 0, size) if hasattr(os, "posix_fallocate") else os.ftruncate(handle, size)
            flat = torch.from_file(name, shared=True, size=parameter.numel(), dtype=parameter.dtype)
        finally:
            os.close(handle)
            os.unlink(name)  # its space is free as soon as the parameter is
        return flat.view(parameter.shape)


@contextmanager
def parameters_on_disk(folder: Path | None) -> Iterator[Callable[[Tensor], None]]:
    """The context in which the large parameters of new modules are in files of this folder. None: in memory, as usual.

    Yields a function that moves a parameter that is no longer where it was created.
    """
    if folder is None:
        yield lambda parameter: None
        return
    disk = OnDisk(folder)

    def move(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None:
            disk.take(parameter)

    hook = register_module_parameter_registration_hook(move)
    try:
        yield disk.take
    finally:
        hook.remove()
