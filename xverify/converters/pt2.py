"""torch.export's own file, ``.pt2``."""

from __future__ import annotations

from xverify.converters._torch import in_precision, in_words
from xverify.framework.converter import INT8, Converter, Job, Step


class Adapter(Converter):
    name = "pt2"
    title = "torch.export file"
    suffixes = (".pt2",)
    unsupported = {
        INT8: "torch quantises an exported program with torchao, which xverify does not use; --to onnx and --to tflite take int8"
    }

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("torch", "export"),)

    @classmethod
    def export(cls, job: Job) -> str:
        """Export the model with torch.export."""
        torch = job.framework.torch
        model, example = in_precision(job)
        with torch.no_grad():
            torch.export.save(torch.export.export(model, example), str(job.path))
        return f"torch.export.save of torch {torch.__version__}{in_words(job)}"
