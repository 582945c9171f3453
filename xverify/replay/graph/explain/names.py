"""One name for the operators and attributes that formats call by different names."""

from __future__ import annotations

import re

_SAME = {
    "conv": "conv2d convolution conv1d conv3d conv2dnative groupconvolution depthwiseconv2d depthwiseconv2dnative depthwiseconv1d "
    "separableconv2d",
    "convtranspose": "transposeconv conv2dtranspose convolutionbackpropdata conv2dbackpropinput convtranspose2d",
    "matmul": "gemm linear addmm dense fullyconnected batchmatmul mm bmm batchmatmulv2",
    "averagepool": "avgpool avgpool2d averagepool2d averagepooling2d avgpool1d averagepooling1d",
    "maxpool": "maxpool2d maxpooling2d maxpool1d maxpoolwithindices",
    "globalaveragepool": "adaptiveavgpool2d globalaveragepooling2d",
    "reducemean": "mean", "reducesum": "sum", "reducemax": "amax max", "reducemin": "amin min",
    "sigmoid": "logistic", "batchnormalization": "batchnorm fusedbatchnorm nativebatchnorm",
    "layernormalization": "layernorm nativelayernorm mvn", "clip": "clamp relu6 hardtanh minimum maximum",
    "add": "addv2 biasadd", "sub": "subtract", "mul": "multiply rescaling", "div": "divide realdiv truediv",
    "pad": "padv2 mirrorpad constantpadnd zeropadding2d", "concat": "concatenation cat concatv2 concatenate",
    "resize": "resizebilinear resizenearestneighbor interpolate upsamplebilinear2d upsamplenearest2d upsampling2d",
    "transpose": "permute", "gather": "embedding gathernd gatherv2 resourcegather", "leakyrelu": "prelu",
    "greaterorequal": "greaterequal ge", "lessorequal": "lessequal le", "greater": "gt", "less": "lt",
}  # fmt: skip
_OPERATORS = {other: name for name, others in _SAME.items() for other in others.split()}
# Attributes that have one meaning in every format.
_ATTRIBUTES = {
    "negative_slope": "alpha", "alpha": "alpha", "eps": "epsilon", "epsilon": "epsilon", "count_include_pad": "count_include_pad",
    "beta": "beta", "approximate": "approximate", "negative_slope_coefficient": "alpha",
}  # fmt: skip


def plain(operator: str) -> str:
    """The name of an operator without its format's spelling: "aten::softmax.int" and "Softmax" are the same."""
    name = re.sub(r"^(aten::|aten\.)_?", "", operator)
    name = re.sub(r"[_\W]", "", name.partition(".")[0]).lower()
    name = re.sub(r"(?<=[a-z])v\d+$", "", name)
    return _OPERATORS.get(name, name)


def common_attribute(name: str) -> str:
    """The common name of an attribute; "" for one whose meaning depends on the format."""
    return _ATTRIBUTES.get(name, "")
