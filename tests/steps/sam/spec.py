from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"logits": TensorSpec(("N", 5))},
    batch=16,
    description="sharpness-aware minimisation: the gradient is that of weights moved uphill",
)
