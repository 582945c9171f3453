from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="super-resolution by three: residual blocks, a pixel shuffle, and a bilinear skip",
    item="image",
    batch=2,
    inputs={"x": TensorSpec(("N", 3, 8, 10), layout="NCHW")},
    outputs={"y": TensorSpec(("N", 3, 24, 30), layout="NCHW")},
)
