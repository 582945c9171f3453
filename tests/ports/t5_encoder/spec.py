from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="encoder of T5 of Hugging Face's transformers: 20 tokens of 53, 2 blocks of width 24, 3 heads",
    item="sequence",
    batch=2,
    inputs={"input_ids": TensorSpec(("N", 20), dtype="int64", low=0, high=53)},
    outputs={"last_hidden_state": TensorSpec(("N", 20, 24))},
)
