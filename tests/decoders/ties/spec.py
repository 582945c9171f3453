from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="GPT-2 of Hugging Face's transformers, with two values for every token that only rounding tells apart",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={"input_ids": TensorSpec(("N", 16), "int64", low=0, high=64)},
    outputs={"logits": TensorSpec(("N", 16, 128))},
)
