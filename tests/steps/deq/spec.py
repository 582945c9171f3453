from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 6))},
    outputs={"logits": TensorSpec(("N", 4))},
    batch=12,
    description="a deep equilibrium model: a fixed point, and its implicit gradient by a second fixed point",
)
