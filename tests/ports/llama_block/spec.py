from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="language model with one Llama block: 9 tokens of 50, 4 heads of queries and 2 of keys",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={"tokens": TensorSpec(("N", 9), dtype="int64", low=0, high=50)},
    outputs={"logits": TensorSpec(("N", 9, 50))},
)
