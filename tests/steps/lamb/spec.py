from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 10))},
    outputs={"logits": TensorSpec(("N", 5))},
    batch=16,
    description="LAMB: Adam whose step is scaled for every layer by the norm of its weights",
)
