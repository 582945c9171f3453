"""Jittor: lazy, compiled operator by operator with the C++ compiler that it finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework import Framework, Source
from xverify.weights import jittor as weights


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    return model


class Adapter(Framework):
    name = "jittor"
    needs = {"jittor": "jittor"}
    modes = {"eager": eager}
    bare = "eager"
    layer_method = "execute"
    usual = ("eager",)
    devices = ("cpu", "cuda")

    def __init__(self, threads: int, device: str) -> None:
        self.onednn = provide_onednn()
        if not self.onednn:
            os.environ["use_mkl"] = "0"
        try:
            import jittor
        except OSError as error:
            if device == "cpu":
                raise
            raise Unsupported(f"no CUDA device: {error}") from None  # an nvcc without the CUDA runtime

        self.jt = jittor
        if device == "cuda" and not jittor.has_cuda:
            raise Unsupported("no CUDA device: jittor.has_cuda is 0 (it needs nvcc on the path, or nvcc_path)")
        jittor.flags.use_cuda = int(device == "cuda")
        self.threads, self.device = threads, device

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {
            "OMP_NUM_THREADS": str(threads),
            # Otherwise the compiled core is kept apart for every git branch that happens to be checked out.
            "cache_name": os.environ.get("cache_name", "default"),
        }
        if device == "cpu":
            variables["nvcc_path"] = ""  # an nvcc without the CUDA runtime would stop the import
        return variables

    @classmethod
    def slow_start(cls) -> str:
        return "compiling its core and operators: 2 to 6 minutes the first time on a machine, then cached"

    @classmethod
    def wants_restart(cls, log: str) -> bool:
        # The second: its compilation of operators in parallel falls over now and then; what it has compiled is cached.
        return "please rerun your command" in log or "Segfault happen, main thread exit" in log

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        model = self.define(source, options)
        if float64:
            model.float64()
        model.eval()
        return model

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        # jt.array narrows 64-bit values silently.
        native = self.jt.array64(array) if array.dtype == np.float64 else self.jt.array(array)
        native.sync()
        return native

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        return array

    def wait(self, outputs: Any) -> None:
        """Make Jittor compute these outputs. Results that nobody asks for are never computed at all."""
        if isinstance(outputs, self.jt.Var):
            outputs.sync()
        elif not outputs:
            self.jt.sync_all(True)
        else:
            self.jt.sync(list(outputs.values() if isinstance(outputs, dict) else outputs))

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return {name: [module] for name, module in model.named_modules() if name}

    def environment(self) -> dict[str, Any]:
        return {
            "jittor": self.jt.__version__,
            "threads": self.threads,
            "onednn": self.onednn or "absent: convolutions are slow",
            **({"use_cuda": self.jt.flags.use_cuda, "cudnn": bool(self.jt.cudnn)} if self.device == "cuda" else {}),
        }

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.jt.no_grad()
        return context


def jittor_home() -> Path:
    """Where Jittor keeps its cache. JITTOR_HOME is sticky: Jittor writes it down for every later process."""
    import jittor_utils

    return Path(jittor_utils.home())


def provide_onednn() -> str:
    """Put oneDNN where Jittor looks before it would download it; returns where it stands, '' when there is none.

    The wheels onednn-cpu-gomp and onednn-devel-cpu-gomp install into the environment's lib/ and include/.
    """
    place = jittor_home() / ".cache" / "jittor" / "mkl" / "dnnl_lnx_2.2.0_cpu_gomp"
    library, header = Path("lib/libmkldnn.so"), Path("include/dnnl.h")
    if (place / library).is_file() and (place / header).is_file():
        return str(place)
    prefix = Path(sys.prefix)
    if not ((prefix / library).is_file() and (prefix / header).is_file()):
        return ""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("lib", "include"):
        link = place / name
        if link.is_symlink():
            link.unlink()  # left by an environment that is gone
        if not link.exists():
            link.symlink_to(prefix / name, target_is_directory=True)
    return str(place)
