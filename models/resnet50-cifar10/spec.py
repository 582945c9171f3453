from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="ResNet-50 on CIFAR-10's images: the ImageNet architecture with ten classes",
    task="classification",
    item="image",
    batch=32,
    code="../resnet50",
    options={"depth": 50, "classes": 10, "size": 32},
    inputs={"x": TensorSpec(("N", 3, 32, 32), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 10))},
)
