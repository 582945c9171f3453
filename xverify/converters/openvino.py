"""OpenVINO IR, a graph in NAME.xml with its weights in NAME.bin, converted from torch's ONNX export."""

from __future__ import annotations

from pathlib import Path

from xverify.converters.onnx import Adapter as Onnx
from xverify.framework.converter import FLOAT16, INT8, Converter, Job, Step


class Adapter(Converter):
    name = "openvino"
    title = "OpenVINO IR"
    suffixes = (".xml",)
    strict_suffix = True
    unsupported = {
        INT8: "OpenVINO quantises with NNCF, which xverify does not use. OpenVINO also runs an int8 ONNX file: write "
        "--to onnx --quantize int8, and check the file with --on openvino"
    }

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return Step("torch", "export"), Step("openvino", "convert", False)

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        return path, path.with_suffix(".bin")

    @classmethod
    def export(cls, job: Job) -> str:
        """Export the model with torch.onnx."""
        return Onnx.export(job)

    @classmethod
    def convert(cls, job: Job) -> str:
        """Convert an ONNX file with OpenVINO's converter."""
        openvino = job.framework.openvino
        half = job.quantize == FLOAT16
        # Without this argument OpenVINO rounds all weights to float16.
        openvino.save_model(openvino.convert_model(str(job.source)), str(job.path), compress_to_fp16=half)
        version = job.framework.environment()["openvino"]
        return f"openvino.convert_model of openvino {version}, weights in {'float16' if half else 'float32'}"
