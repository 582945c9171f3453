from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="Gemma 3 of Hugging Face's transformers: 16 tokens of 64, 3 layers, two of them with a window of 6",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={"input_ids": TensorSpec(("N", 16), "int64", low=0, high=64)},
    outputs={"logits": TensorSpec(("N", 16, 64))},
)
