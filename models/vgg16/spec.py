from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="VGG-16 for ImageNet, without batch norm: torchvision's, jittor.models', and Keras with torch's semantics",
    task="classification",
    item="image",
    batch=2,
    inputs={"x": TensorSpec(("N", 3, 224, 224), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 1000))},
)
