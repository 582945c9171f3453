"""ExecuTorch programs, ``.pte``, of which XNNPACK computes what it can."""

from __future__ import annotations

from typing import ClassVar

from xverify.converters._torch import in_precision, in_words
from xverify.framework.converter import INT8, Converter, Job, Step
from xverify.frameworks.executorch import runtime


class Adapter(Converter):
    name = "executorch"
    title = "ExecuTorch program"
    suffixes: ClassVar[tuple[str, ...]] = (".pte",)
    unsupported = {INT8: "xverify does not quantise programs of ExecuTorch; --to onnx and --to tflite take int8"}
    backend: ClassVar[str] = runtime.XNNPACK

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("executorch", "lower"),)

    @classmethod
    def lower(cls, job: Job) -> str:
        """Export the model with torch.export, and lower it with ExecuTorch."""
        model, example = in_precision(job)
        program, _ = runtime.lowered(job.framework.torch, model, example, cls.backend)
        job.path.write_bytes(program.buffer)
        version = job.framework.environment()["executorch"]
        return f"to_edge_transform_and_lower of executorch {version}, {cls.backend}{in_words(job)}"
