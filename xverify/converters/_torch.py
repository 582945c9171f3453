"""The precision of a torch model that is converted."""

from __future__ import annotations

import copy
from typing import Any

from xverify.framework.converter import FLOAT16, Job


def in_precision(job: Job) -> tuple[Any, tuple[Any, ...]]:
    """The model of a job and an example of its inputs, both in float16 where that is asked for."""
    example = job.native[0]
    if job.quantize != FLOAT16:
        return job.model, example
    halved = tuple(tensor.half() if tensor.is_floating_point() else tensor for tensor in example)
    return copy.deepcopy(job.model).half(), halved


def in_words(job: Job) -> str:
    """The precision for the phrase that a step returns."""
    return ", of model.half()" if job.quantize == FLOAT16 else ""
