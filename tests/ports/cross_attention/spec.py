from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="decoder block that reads 8 vectors of a memory, normalised after each sum",
    item="query",
    batch=3,
    inputs={"query": TensorSpec(("N", 5, 20)), "memory": TensorSpec(("N", 8, 12))},
    outputs={"y": TensorSpec(("N", 5, 6)), "attention": TensorSpec(("N", 5, 8))},
)
