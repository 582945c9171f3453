"""What the formats that PyTorch opens share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, SubjectError, Unsupported, first_line
from xverify.framework.adapter import Array
from xverify.framework.modelfile import FLOATS, Change, ModelFile, Natives, by_name
from xverify.framework.structures import by_path
from xverify.frameworks.torch.base import OnTorch
from xverify.weights.stored import Stored

INTERPRETER = "The following operation failed in the TorchScript interpreter"  # begins the text of an error in a script


class TorchFile(ModelFile, OnTorch):
    """The base class of formats that PyTorch opens."""

    runtime = "torch"
    extra = "torch"
    needs = {"torch": "torch"}

    def __init__(self, threads: int, device: str) -> None:
        import torch

        self.use(torch, threads, device)

    def inference(self) -> AbstractContextManager[Any]:
        # Not inference_mode: a file may hold parameters that its code changes in place.
        context: AbstractContextManager[Any] = self.torch.no_grad()
        return context

    def rounded_operations(self, seed: int) -> AbstractContextManager[Any]:
        from xverify.float64.operations import perturbed_operations
        from xverify.float64.rounding import Noise

        return perturbed_operations(Noise(seed))

    def narrow(self, array: Array, dtype: str) -> Any:
        return self.to_native(array, None).to(getattr(self.torch, dtype))

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.torch.from_numpy(np.array(array, order="C")).to(self.device)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        tensor = self.torch.as_tensor(tensor).detach().cpu()
        if tensor.is_quantized:
            tensor = tensor.dequantize()
        if tensor.dtype == self.torch.bfloat16:
            tensor = tensor.float()
        array: Array = tensor.resolve_conj().resolve_neg().numpy()
        return array

    def environment(self) -> dict[str, object]:
        return {"torch": self.torch.__version__, "threads": self.torch.get_num_threads(), **self.device_settings()}

    def stored(self, model: Any) -> Stored:
        return by_name({name: self.to_numpy(tensor, None) for name, tensor in self.tensors(model).items()})

    def tensors(self, model: Any) -> Mapping[str, Any]:
        """The parameters and buffers of an opened file by name."""
        state: Mapping[str, Any] = model.state_dict()
        return state

    def with_weights(self, model: Any, change: Change, folder: Path) -> Any:
        torch = self.torch
        tensors = {name: each for name, each in self.computed_with(model).items() if each.dtype == torch.float32}
        with torch.no_grad():
            for name, array in change({name: self.to_numpy(each, None) for name, each in tensors.items()}).items():
                tensors[name].copy_(torch.from_numpy(array))
        return model if tensors else None

    def computed_with(self, model: Any) -> Mapping[str, Any]:
        """The parameters and buffers that a call of the opened file computes with."""
        return self.tensors(model)

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        text = str(error)
        if "Unknown builtin op:" in text:
            return (
                Unsupported,
                f"operator {text.split('Unknown builtin op:')[1].split()[0].rstrip('.')} is not in this PyTorch",
            )
        if text.startswith(INTERPRETER):
            return Failed, text.strip().splitlines()[-1]  # a traceback comes first, as Python prints it
        return Failed, first_line(error)

    def checked(self, call: Any, float64: bool) -> Any:
        """A function that returns outputs by name. float64: raise Unsupported when an output is of lower precision."""

        def run(*inputs: Any) -> Natives:
            outputs = dict(named(call(*inputs)))
            narrow = [name for name, value in outputs.items() if float64 and self._is_narrow(value)]
            if narrow:
                raise Unsupported(f"output {narrow[0]!r} is not float64: the file converts to a lower precision itself")
            return outputs

        return run

    def _is_narrow(self, value: Any) -> bool:
        dtype = str(getattr(value, "dtype", "")).removeprefix("torch.")
        return dtype in FLOATS and dtype != "float64"


def named(value: Any) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of everything in a nested result.

    A single tensor is "output". Other names are paths (see ``structures.by_path``), after "output_" for an item of a tuple or list.
    """
    listed = isinstance(value, (tuple, list)) and not hasattr(value, "_fields")
    for path, tensor in by_path(value).items():
        yield (f"output_{path}" if listed else path or "output"), tensor
