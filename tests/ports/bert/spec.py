from xverify import Loss, ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="BERT of Hugging Face's transformers: 9 tokens of 53, 2 layers of width 24, 3 heads, with padding",
    item="sequence",
    batch=4,
    inputs={
        "input_ids": TensorSpec(("N", 9), dtype="int64", low=0, high=53),
        "attention_mask": TensorSpec(("N", 9), dtype="int64", low=0, high=2),
        "token_type_ids": TensorSpec(("N", 9), dtype="int64", low=0, high=2),
    },
    outputs={"last_hidden_state": TensorSpec(("N", 9, 24)), "pooler_output": TensorSpec(("N", 24))},
    targets={"hidden": TensorSpec(("N", 9, 24)), "pooled": TensorSpec(("N", 24))},
    loss=[
        Loss("mse", output="last_hidden_state", target="hidden"),
        Loss("mse", output="pooler_output", target="pooled"),
    ],
)
