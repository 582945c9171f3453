"""Files of ``torch.save`` with a whole module: a pickle, which is code. They are opened with ``--trust`` only."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from xverify import reading
from xverify.errors import Failed
from xverify.formats import _torch_precision as torch_precision
from xverify.formats import _zip
from xverify.formats._torch_file import TorchFile
from xverify.framework.modelfile import Signature, Tensor, numpy_name
from xverify.results.precision import Precision

# How the older format of torch.save begins: a pickle of its magic number.
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."


def eager(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module directly."""
    return framework.checked(model, next((p.dtype for p in model.parameters()), None) == framework.torch.float64)


class Adapter(TorchFile):
    name = "torch-pickle"
    title = "file of torch.save"
    modes = {"eager": eager}
    implicit_mode = "eager"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file():
            return False
        with reading.opened(path) as file:
            begin = file.read(len(_LEGACY))
        names = _zip.inner_names(path) if begin.startswith(b"PK") else set()
        return begin == _LEGACY or ("data.pkl" in names and "constants.pkl" not in names)

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        return "it is a pickle, which can run any code when it is opened. Export the model with torch.export.save or torch.jit.save"

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Any:
        sys.path.insert(0, str(path.parent))  # a pickle names the module that defines its class
        try:
            model = self.torch.load(path, map_location=self.device, weights_only=False)
        finally:
            sys.path.remove(str(path.parent))
        if not isinstance(model, self.torch.nn.Module):
            raise Failed(
                f"it holds a {type(model).__name__}, and no module; weights alone need the code of their model"
            )
        return model.eval().double() if float64 else model.eval()

    def signature(self, model: Any) -> Signature:
        dtype = numpy_name(str(next((p.dtype for p in model.parameters()), self.torch.float32)))
        arguments = inspect.signature(model.forward).parameters.values()
        names = [argument.name for argument in arguments if argument.default is inspect.Parameter.empty]
        return Signature(tuple(Tensor(name, None, dtype) for name in names), ())

    def precision(self, model: Any) -> Precision:
        return torch_precision.of_module(model)
