from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="Llama of Hugging Face's transformers: 9 tokens of 53, 2 layers of width 24, 6 heads that share 2 keys",
    task="language-model",
    item="sequence",
    batch=4,
    inputs={"input_ids": TensorSpec(("N", 9), dtype="int64", low=0, high=53)},
    outputs={"logits": TensorSpec(("N", 9, 53))},
)
