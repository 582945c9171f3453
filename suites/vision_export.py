"""Exports one architecture of torchvision to ONNX files: by both exporters of torch, in float16, and in dynamic int8.

python suites/vision_export.py NAME FOLDER [KIND ...]
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from xverify.frameworks.torch.torchvision import declare_torchvision_ops

BATCH, BATCHES = 2, 4
OPSET = 18
# Architecture -> (size of the image, arguments), in the order of their cost. Small images: what is judged is the arithmetic.
ARCHITECTURES: dict[str, tuple[int, dict[str, Any]]] = {
    "squeezenet1_1": (64, {}),
    "shufflenet_v2_x0_5": (64, {}),
    "mnasnet0_5": (64, {}),
    "mobilenet_v3_small": (64, {}),
    "mobilenet_v2": (64, {}),
    "resnet18": (64, {}),
    "mobilenet_v3_large": (64, {}),
    "regnet_y_400mf": (64, {}),
    "regnet_x_400mf": (64, {}),
    "efficientnet_b0": (64, {}),
    "googlenet": (64, {"aux_logits": False, "init_weights": True}),
    "resnet34": (64, {}),
    "densenet121": (64, {}),
    "resnet50": (64, {}),
    "resnext50_32x4d": (64, {}),
    "inception_v3": (96, {"aux_logits": False, "init_weights": True}),
    "convnext_tiny": (64, {}),
    "swin_t": (64, {}),
    "alexnet": (224, {}),
    "vit_b_32": (64, {"image_size": 64}),
}


def build(name: str) -> tuple[Any, Any]:
    """(the model in evaluation mode, an input). Its weights are random, none are zero, and its batch norms know their inputs."""
    declare_torchvision_ops(torch)
    import torchvision

    size, arguments = ARCHITECTURES[name]
    torch.manual_seed(0)
    model = torchvision.models.get_model(name, weights=None, **arguments)
    with torch.no_grad():
        for parameter in model.parameters():
            if float(parameter.std() if parameter.numel() > 1 else 0.0) == 0.0:  # zeros or ones: biases and scales
                parameter.add_(0.1 * torch.randn_like(parameter))
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = None  # the average of all batches
        model.train()
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.eval()
        for _ in range(BATCHES):
            model(torch.randn(8, 3, size, size))
    return model.eval(), torch.randn(BATCH, 3, size, size)


def export(model: Any, x: Any, path: Path, dynamo: bool) -> None:
    """Export by the exporter on torch.export (dynamo), or by the one on TorchScript."""
    names = {"input_names": ["x"], "output_names": ["logits"]}
    more = {"external_data": False} if dynamo else {}
    torch.onnx.export(model, (x,), str(path), dynamo=dynamo, opset_version=OPSET, **names, **more)


def main(name: str, folder: Path, *kinds: str) -> None:
    """Write script.onnx, dynamo.onnx, float16.onnx and int8.onnx, and say in a line which could not be written.

    kinds: those that are wanted; all without any.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.float16 import convert_float_to_float16

    model, x = build(name)
    script = folder / "script.onnx"

    def half() -> None:
        onnx.save(convert_float_to_float16(onnx.load(script), keep_io_types=True), folder / "float16.onnx")

    def int8() -> None:
        quantize_dynamic(script, folder / "int8.onnx", weight_type=QuantType.QUInt8)

    makers = {
        "script": lambda: export(model, x, script, False),
        "dynamo": lambda: export(model, x, folder / "dynamo.onnx", True),
        "float16": half,
        "int8": int8,
    }
    for what, maker in makers.items():
        if kinds and what not in kinds:
            continue
        try:
            maker()
        except Exception as error:
            (folder / f"{what}.onnx").unlink(missing_ok=True)
            print(f"{what}: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
