from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="MLP-Mixer: one MLP over the patches of an image, one over their features, by turns",
    batch=2,
    inputs={"image": TensorSpec(("N", 3, 12, 16), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 6))},
)
