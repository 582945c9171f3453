from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="residual network of convolutions with batch norms: images 12×15, widths 8 and 12",
    task="classification",
    item="image",
    batch=5,
    inputs={"image": TensorSpec(("N", 3, 12, 15), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 7))},
)
