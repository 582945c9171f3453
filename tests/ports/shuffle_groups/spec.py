from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="classifier of grouped and depthwise convolutions, with a shuffle of the channels between them",
    task="classification",
    item="image",
    batch=4,
    inputs={"x": TensorSpec(("N", 3, 12, 16), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 7))},
)
