from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="decoder-only transformer (GPT), hand-written: 64 tokens of 1000, 4 blocks of width 128, tied output head",
    task="language-model",
    item="sequence",
    batch=8,
    inputs={"tokens": TensorSpec(("N", 64), dtype="int64", low=0, high=1000)},
    outputs={"logits": TensorSpec(("N", 64, 1000))},
)
