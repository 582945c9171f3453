"""The TensorFlow model of a job as one function."""

from __future__ import annotations

from collections.abc import Iterator

from xverify.framework.adapter import Array
from xverify.framework.converter import Job
from xverify.framework.modelfile import ModelFile
from xverify.frameworks.litert.tflite import Serving, serving


def served(job: Job) -> Serving:
    """The model with the names of the spec, or of the file."""
    framework = job.framework
    example = dict(zip(job.inputs, job.native[0]))
    return serving(framework.tf, job.model, framework.forward(job.model), example, list(job.outputs))


def source(job: Job) -> str:
    """What the model is of, for the phrase that a step returns."""
    return "of the file" if isinstance(job.framework, ModelFile) else "of the folder's tensorflow.py"


def representative(job: Job) -> Iterator[dict[str, Array]]:
    """The input cases in TensorFlow's layout."""
    for case in job.native:
        yield {name: tensor.numpy() for name, tensor in zip(job.inputs, case)}
