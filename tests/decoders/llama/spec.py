from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="Llama of Hugging Face's transformers: 16 tokens of 64, 2 layers, 4 heads that share 2 keys, scaled RoPE",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={"input_ids": TensorSpec(("N", 16), "int64", low=0, high=64)},
    outputs={"logits": TensorSpec(("N", 16, 64))},
)
