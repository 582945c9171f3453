from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="attention and an LSTM over as many steps as there are items, so that shapes do not tell which axis is the time",
    item="sequence",
    batch=4,
    inputs={"x": TensorSpec(("N", 4, 12))},
    outputs={"y": TensorSpec(("N", 4, 5))},
)
