from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="ResNet-152 for ImageNet: fifty bottleneck blocks",
    task="classification",
    item="image",
    batch=2,
    code="../resnet50",
    options={"depth": 152},
    inputs={"x": TensorSpec(("N", 3, 224, 224), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 1000))},
)
