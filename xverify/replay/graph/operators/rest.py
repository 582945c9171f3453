"""All operators that have no implementation here: onnx's own evaluator computes them, one node at a time."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from .registry import Call

# onnx's implementations that compute in float32 whatever they are given. Their definitions by other operators are used.
NARROW = ("LinearAttention", "CausalConvWithState", "GroupNormalization", "MeanVarianceNormalization")
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")


@cache
def implementation(domain: str, op: str, version: int) -> Any:
    """onnx's class for an operator; None where it has none."""
    # The import takes half a second, and most graphs do without it.
    from onnx.reference import ReferenceEvaluator
    from onnx.reference.op_run import OpFunction, OpRun, RuntimeContextError
    from onnx.reference.ops import aionnx_preview_training, aionnxml, load_op

    loaders = {
        "": partial(load_op, evaluator_cls=ReferenceEvaluator),
        "ai.onnx.ml": aionnxml.load_op,
        "ai.onnx.preview.training": aionnx_preview_training.load_op,
    }
    if op in NARROW or domain not in loaders:
        return None
    try:
        made = loaders[domain](domain, op, version)
    except (NotImplementedError, RuntimeContextError, ValueError, RuntimeError):
        return None
    # Functions are computed by our own evaluation, in float64.
    return made if isinstance(made, type) and issubclass(made, OpRun) and not issubclass(made, OpFunction) else None


def compute(call: Call, *inputs: Any) -> Any:
    """The outputs of a node by onnx's own evaluator."""
    from onnx.reference import ReferenceEvaluator

    node = call.node
    kind = implementation(node.domain, node.op, node.version)
    if kind is None:
        raise node.unsupported("has no implementation in float64")
    run = kind(
        node.proto,
        {
            "log": lambda *_: None,
            "opsets": {node.domain: node.version, "": node.version},
            "verbose": 0,
            "new_ops": None,
            "evaluator_cls": ReferenceEvaluator,
        },
    )
    for name, value in call.attributes.items():
        if isinstance(value, float):
            setattr(run, name, call.dtype(value))
        elif isinstance(value, list) and value and isinstance(value[0], float):
            setattr(run, name, [call.dtype(item) for item in value])
    if node.op == "NonMaxSuppression":  # its limits may be single numbers without an axis
        inputs = (*inputs[:2], *(None if each is None else np.reshape(each, -1) for each in inputs[2:]))
    with np.errstate(all="ignore"):
        return tuple(run.run(*inputs))
