from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="ResNet-18 for ImageNet: two 3×3 convolutions a block",
    task="classification",
    item="image",
    batch=8,
    code="../resnet50",
    options={"depth": 18},
    inputs={"x": TensorSpec(("N", 3, 224, 224), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 1000))},
)
