from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="BERT of Hugging Face's transformers, an encoder: 16 tokens of 64, 2 layers of width 48",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={"input_ids": TensorSpec(("N", 16), "int64", low=0, high=64)},
    outputs={"logits": TensorSpec(("N", 16, 64))},
)
