from xverify import ModelSpec, TensorSpec

TOKENS = TensorSpec(("N", 9), "int64", 0, 16)
SPEC = ModelSpec(
    inputs={"chosen": TOKENS},
    outputs={"logits": TensorSpec(("N", 9, 16))},
    targets={"rejected": TOKENS},
    batch=6,
    description="direct preference optimisation beside a frozen copy of the model, with label smoothing",
)
