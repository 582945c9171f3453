from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="text classifier: LSTM over 11 tokens, attention pooling without the tokens of id 0",
    batch=4,
    inputs={"tokens": TensorSpec(("N", 11), dtype="int64", low=0, high=8)},
    outputs={"logits": TensorSpec(("N", 5)), "attention": TensorSpec(("N", 11))},
)
