"""Keras's own file, of the folder's TensorFlow model with the weights of the reference: a target for ``zoo_files.py`` alone."""

from __future__ import annotations

from xverify.errors import Unsupported
from xverify.framework.converter import FLOAT16, INT8, Converter, Job, Step


class Adapter(Converter):
    name = "keras"
    title = "Keras file"
    suffixes = (".keras",)
    strict_suffix = True
    unsupported = dict.fromkeys((FLOAT16, INT8), "Keras saves the precision of the model")

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return (Step("tensorflow", "save"),)

    @classmethod
    def save(cls, job: Job) -> str:
        """Save the model as Keras does."""
        import keras

        if not isinstance(job.model, keras.Model) or not getattr(job.model, "inputs", None):
            raise Unsupported("the folder's tensorflow.py makes no functional model of Keras")
        job.model.save(str(job.path))
        return f"Model.save of keras {keras.__version__}"
