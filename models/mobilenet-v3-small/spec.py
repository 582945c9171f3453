from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="MobileNetV3-Small for ImageNet: depthwise convolutions, hard-swish, squeeze-and-excitation",
    task="classification",
    item="image",
    batch=16,
    inputs={"x": TensorSpec(("N", 3, 224, 224), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 1000))},
)
