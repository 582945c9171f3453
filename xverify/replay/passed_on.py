"""The captured outputs that a replay passes on, by which an unchanged input of a later layer is recognised without reading it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary


class PassedOn:
    """Tensors of the exact pass that are captured arrays in the reference's layout, with the file of each.

    Equal captured arrays share one file. A layer was therefore given what it should be given where the glue code gives it such a
    tensor, and the file is one of those that were captured as its inputs.
    """

    def __init__(self) -> None:
        self._files: Any = WeakTensorKeyDictionary()  # tensor -> (file, version)

    def note(self, tensor: Tensor, file: str) -> None:
        """Note that a tensor has the values of this file."""
        self._files[tensor] = (file, tensor._version)

    def among(self, tensors: Sequence[Tensor], files: Sequence[str]) -> dict[int, str]:
        """Index of a tensor -> its file, for the tensors that were passed on unchanged and whose file is among these."""
        found: dict[int, str] = {}
        left = list(files)
        for index, tensor in enumerate(tensors):
            file, version = self._files.get(tensor, ("", 0))
            if file in left and version == tensor._version:
                left.remove(file)
                found[index] = file
        return found
