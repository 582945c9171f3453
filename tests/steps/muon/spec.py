from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"logits": TensorSpec(("N", 6))},
    batch=24,
    description="Muon for the hidden matrices, whose momentum Newton-Schulz makes orthogonal; AdamW for the rest",
)
