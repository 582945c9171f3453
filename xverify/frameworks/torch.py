"""PyTorch: the reference of names, layout and semantics."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from xverify.framework import Framework, Source
from xverify.frameworks._torch import OnTorch
from xverify.spec import ModelFolder
from xverify.weights import torch as weights


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    return model


def trace(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.torch.jit.trace(model, example)


def script(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.torch.jit.script(model)


def compiled(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    return framework.torch.compile(model)


def channels_last(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    order = framework.torch.channels_last
    model = model.to(memory_format=order)

    def call(*inputs: Any) -> Any:
        return model(*(tensor.contiguous(memory_format=order) if tensor.ndim == 4 else tensor for tensor in inputs))

    return call


class Adapter(OnTorch):
    name = "torch"
    needs = {"torch": "torch"}
    modes = {"eager": eager, "trace": trace, "script": script, "compile": compiled, "channels-last": channels_last}
    usual = ("eager",)

    def __init__(self, threads: int, device: str) -> None:
        import torch

        self.use(torch, threads, device)
        declare_torchvision_ops(torch)

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        if mode == "trace" and folder.spec.control_flow:
            return f"{folder.spec.control_flow}, and a trace holds one path only: use torch:script"
        if mode == "channels-last" and not any(len(tensor.shape) == 4 for tensor in folder.spec.inputs.values()):
            return "the model takes no images: channels_last is a memory order of N,C,H,W tensors"
        return super().refuses(folder, mode)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        model = self.define(source, options).eval().to(self.device)
        return model.double() if float64 else model

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        return self.torch.from_numpy(np.array(array)).to(self.device)

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        array: np.ndarray = tensor.detach().cpu().numpy()
        return array

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return {name: [module] for name, module in model.named_modules() if name}

    def environment(self) -> dict[str, Any]:
        return {"torch": self.torch.__version__, "threads": self.torch.get_num_threads(), **self.device_facts()}

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.inference_mode()
        return context

    def traces(self, call: Callable[..., Any]) -> int | None:
        if not hasattr(call, "_orig_mod"):  # what torch.compile wraps
            return None
        from torch._dynamo.utils import counters

        graphs: int = counters["stats"]["unique_graphs"]
        return graphs

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        norms = [module for module in model.modules() if isinstance(module, self.torch.nn.modules.batchnorm._BatchNorm)]
        if not norms:
            return
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # the plain average over the calls
            norm.train()  # the norms alone: dropout stays off
        with self.torch.no_grad():
            model(*inputs)
        model.eval()

    def export_onnx(self, model: Any, inputs: tuple[Any, ...], names: tuple[list[str], list[str]], path: Path) -> None:
        # The older exporter without folding is the one that keeps every parameter as an initializer of its own name and
        # leaves a graph that ONNX Runtime can still fuse. It merges equal tensors, so each is made distinct first; the
        # true weights are set by name in the exported file.
        generator = self.torch.Generator().manual_seed(0)
        with self.torch.no_grad():
            for tensor in model.state_dict().values():
                if tensor.is_floating_point():
                    tensor.copy_(self.torch.rand(tensor.shape, generator=generator) + 0.5)
        self.torch.onnx.export(
            model,
            inputs,
            str(path),
            input_names=names[0],
            output_names=names[1],
            dynamo=False,
            do_constant_folding=False,
            training=self.torch.onnx.TrainingMode.EVAL,
        )


def declare_torchvision_ops(torch: Any) -> None:
    """Let torchvision's models be imported where its compiled operators cannot be loaded.

    torchvision from the package index is built against the CUDA build of torch; beside a CPU build its import stops with
    "operator torchvision::nms does not exist". The classification models use none of those operators, so declaring their
    schemas is enough.
    """
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None or sys.platform == "win32":
        return
    compiled = Path(found.origin).with_name("_C.so")
    try:
        torch.ops.load_library(str(compiled))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        for operator in ("nms", "qnms"):
            library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        torch._xverify_torchvision = library  # the declaration lives as long as this object
