from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    batch=4,
    inputs={"tokens": TensorSpec(("N", 6), dtype="int64", low=0, high=11)},
    outputs={"logits": TensorSpec(("N", 6, 11))},
)
