from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="one tanh layer applied as often as an input says, 1 to 8 times, then a linear layer",
    task="classification",
    item="item",
    batch=32,
    inputs={
        "x": TensorSpec(("N", 64)),
        "steps": TensorSpec((1,), dtype="int64", low=1, high=9),
    },
    outputs={"logits": TensorSpec(("N", 10))},
    control_flow="the length of its loop is the input `steps`",
)
