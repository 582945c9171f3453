from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="encoder block for sequences of up to 7 vectors; the mask has 1 for a vector and 0 for padding",
    item="sequence",
    batch=2,
    inputs={"x": TensorSpec(("N", 7, 24)), "mask": TensorSpec(("N", 7), dtype="int64", low=0, high=2)},
    outputs={"scores": TensorSpec(("N", 5)), "features": TensorSpec(("N", 7, 24))},
)
