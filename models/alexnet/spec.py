from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="AlexNet for ImageNet, one column: torchvision's, jittor.models', and Keras with torch's semantics",
    task="classification",
    item="image",
    batch=8,
    inputs={"x": TensorSpec(("N", 3, 224, 224), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 1000))},
)
