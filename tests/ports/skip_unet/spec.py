from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="generator from image to image: strided convolutions down, transposed ones up, skips by concatenation",
    item="image",
    batch=3,
    inputs={"x": TensorSpec(("N", 3, 16, 24), layout="NCHW")},
    outputs={"y": TensorSpec(("N", 2, 16, 24), layout="NCHW")},
)
