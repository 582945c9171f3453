from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="mixture of four experts, all of which each token goes through",
    batch=3,
    inputs={"tokens": TensorSpec(("N", 5, 12))},
    outputs={"scores": TensorSpec(("N", 5, 6)), "load": TensorSpec(("N", 4))},
)
