"""TensorFlow's SavedModel, of the folder's TensorFlow model with the weights of the reference."""

from __future__ import annotations

from xverify.converters._tensorflow import served, source
from xverify.framework.converter import FLOAT16, INT8, Converter, Job, Step


class Adapter(Converter):
    name = "savedmodel"
    title = "TensorFlow SavedModel"
    folder = True
    unsupported = dict.fromkeys(
        (FLOAT16, INT8),
        "TensorFlow has no converter of a SavedModel to this precision; --to tflite takes float16 and int8",
    )

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("tensorflow", "save"),)

    @classmethod
    def save(cls, job: Job) -> str:
        """Save the model with tf.saved_model."""
        tf = job.framework.tf
        found = served(job)
        tf.saved_model.save(found.module, str(job.path), signatures=found.function)
        return f"tf.saved_model.save of tensorflow {tf.__version__}, {source(job)}"
