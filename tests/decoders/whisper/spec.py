from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="The decoder of Whisper of Hugging Face's transformers: 16 tokens of 64 that attend to 10 states of an encoder",
    task="language-model",
    item="sequence",
    batch=2,
    inputs={
        "input_ids": TensorSpec(("N", 16), "int64", low=0, high=64),
        "encoder_hidden_states": TensorSpec(("N", 10, 48)),
    },
    outputs={"logits": TensorSpec(("N", 16, 64))},
)
