from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two ConvNeXt blocks: depthwise convolutions of 7 by 7, layer norm over channels, layer scale",
    task="classification",
    item="image",
    batch=2,
    inputs={"x": TensorSpec(("N", 3, 18, 20), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 9))},
)
