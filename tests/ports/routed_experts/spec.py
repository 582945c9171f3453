from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="mixture of six experts, of which each token goes through the best two: 8 tokens of width 16",
    batch=4,
    inputs={"tokens": TensorSpec(("N", 8, 16))},
    outputs={"y": TensorSpec(("N", 8, 16))},
    targets={"wanted": TensorSpec(("N", 8, 16))},
    loss="mse",
)
