from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 10))},
    outputs={"logits": TensorSpec(("N", 4))},
    batch=16,
    description="Lion: the sign of an interpolated momentum, with decoupled weight decay",
)
