from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="convolutions of even kernels that torch pads on both ends and crops at the end, at the start or at both",
    batch=3,
    inputs={"signal": TensorSpec(("N", 4, 15), layout="NCL")},
    outputs={"y": TensorSpec(("N", 5, 15), layout="NCL")},
)
