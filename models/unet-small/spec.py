from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="small U-Net: a transposed convolution and a bilinear resize on the way up, both joined by concatenation",
    task="segmentation",
    item="image",
    batch=8,
    inputs={"x": TensorSpec(("N", 3, 128, 128), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 2, 128, 128), layout="NCHW")},
)
