from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="language model of two selective state spaces (Mamba), whose scan is a loop over the positions",
    task="language-model",
    batch=3,
    inputs={"ids": TensorSpec(("N", 11), dtype="int64", low=0, high=60)},
    outputs={"logits": TensorSpec(("N", 11, 60))},
)
