"""TensorFlow Lite, of the folder's TensorFlow model with the weights of the reference."""

from __future__ import annotations

from xverify.converters._tensorflow import representative, served, source
from xverify.framework.converter import FLOAT16, INT8, Converter, Job, Step
from xverify.frameworks.litert.tflite import convert

_IN_WORDS = {FLOAT16: ", weights in float16", INT8: ", weights and activations in int8, calibrated with {} input cases"}


class Adapter(Converter):
    name = "tflite"
    title = "TensorFlow Lite file"
    suffixes = (".tflite",)

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("tensorflow", "convert"),)

    @classmethod
    def convert(cls, job: Job) -> str:
        """Convert the model with TFLiteConverter."""
        tf = job.framework.tf
        job.path.write_bytes(convert(tf, served(job), job.quantize, representative(job)))
        how = _IN_WORDS.get(job.quantize or "", "").format(len(job.native))
        return f"tf.lite.TFLiteConverter of tensorflow {tf.__version__}, {source(job)}{how}"
