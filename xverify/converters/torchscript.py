"""TorchScript: a trace of the model, or its compiled source where the control flow depends on the input."""

from __future__ import annotations

import warnings

from xverify.converters._torch import in_precision, in_words
from xverify.framework.converter import INT8, Converter, Job, Step


class Adapter(Converter):
    name = "torchscript"
    title = "TorchScript file"
    suffixes = (".torchscript", ".ts", ".pt")
    unsupported = {
        INT8: "torch quantises with torchao, which makes no TorchScript; --to onnx and --to tflite take int8",
    }

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("torch", "export"),)

    @classmethod
    def export(cls, job: Job) -> str:
        """Trace or compile the model with torch.jit."""
        torch = job.framework.torch
        model, example = in_precision(job)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            made = torch.jit.trace(model, example) if job.traces else torch.jit.script(model)
            made.save(str(job.path))
        how = "trace" if job.traces else "script"
        return f"torch.jit.{how} of torch {torch.__version__}{in_words(job)}"
