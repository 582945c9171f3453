from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    batch=8,
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"y": TensorSpec(("N", 5))},
    targets={"goal": TensorSpec(("N", 5))},
)
