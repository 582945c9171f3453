from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="T5-like encoder block: a learned bias for each head and each range of distances between 10 positions",
    item="sequence",
    batch=2,
    inputs={"x": TensorSpec(("N", 10, 18))},
    outputs={"y": TensorSpec(("N", 10, 4))},
)
