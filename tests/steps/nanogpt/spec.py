from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"tokens": TensorSpec(("N", 12), "int64", 0, 32)},
    outputs={"logits": TensorSpec(("N", 12, 32))},
    targets={"next": TensorSpec(("N", 12), "int64", 0, 32)},
    batch=4,
    description="a small GPT: AdamW in two groups, two micro-batches, clipping, a warm-up and a cosine decay",
)
