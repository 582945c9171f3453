from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="stacked LSTM language model, 3 layers of 256, 10,001 words: every gate from primitive operations, unrolled",
    task="language-model",
    item="sequence",
    batch=8,
    inputs={"tokens": TensorSpec(("N", 50), dtype="int64", low=0, high=10_001)},
    outputs={"logits": TensorSpec(("N", 50, 10_001))},
)
