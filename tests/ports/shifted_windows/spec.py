from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two blocks of attention within windows of an image; the windows of the second block are shifted",
    task="classification",
    item="image",
    batch=2,
    inputs={"x": TensorSpec(("N", 3, 16, 24), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 5))},
)
