"""OpenVINO IR, a graph in NAME.xml with its weights in NAME.bin, converted from torch's ONNX export, or from a SavedModel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from xverify.converters.onnx import Adapter as Onnx
from xverify.converters.savedmodel import Adapter as SavedModel
from xverify.framework.converter import FLOAT16, INT8, Converter, Job, Step


class Adapter(Converter):
    name = "openvino"
    title = "OpenVINO IR"
    suffixes = (".xml",)
    strict_suffix = True

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return Step("torch", "export"), cls._last(quantize)

    @classmethod
    def steps_of_file(cls, runtime: str, quantize: str | None) -> tuple[Step, ...]:
        return (Step("tensorflow", "save", file="saved"), cls._last(quantize)) if runtime == "tensorflow" else ()

    @classmethod
    def _last(cls, quantize: str | None) -> Step:
        if quantize == INT8:
            return Step("openvino", "quantize", False, module="nncf")
        return Step("openvino", "convert", False)

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        return path, path.with_suffix(".bin")

    @classmethod
    def export(cls, job: Job) -> str:
        """Export the model with torch.onnx."""
        return Onnx.export(job)

    @classmethod
    def save(cls, job: Job) -> str:
        """Save the model with tf.saved_model."""
        return SavedModel.save(job)

    @classmethod
    def convert(cls, job: Job) -> str:
        """Convert an ONNX file or a SavedModel with OpenVINO's converter."""
        half = job.quantize == FLOAT16
        return f"{cls._write(job, job.framework.openvino.convert_model(str(job.source)), half)}, weights in " + (
            "float16" if half else "float32"
        )

    @classmethod
    def quantize(cls, job: Job) -> str:
        """Quantise what OpenVINO's converter makes to 8 bits, weights and activations, with the input cases for calibration."""
        import nncf

        model = job.framework.openvino.convert_model(str(job.source))
        places = {name: index for index, each in enumerate(model.inputs) for name in each.get_names()}
        cases = [{places.get(name, at): array for at, (name, array) in enumerate(case.items())} for case in job.cases()]
        made = nncf.quantize(model, nncf.Dataset(cases), subset_size=len(cases))
        return (
            f"{cls._write(job, made)}, quantised with nncf.quantize of nncf {nncf.__version__}: weights and activations in int8, "
            f"calibrated with {len(cases)} input cases"
        )

    @classmethod
    def _write(cls, job: Job, model: Any, half: bool = False) -> str:
        """Write the two files. Returns which converter made the model."""
        # Without this argument OpenVINO rounds all weights to float16.
        job.framework.openvino.save_model(model, str(job.path), compress_to_fp16=half)
        return f"openvino.convert_model of openvino {job.framework.environment()['openvino']}"
