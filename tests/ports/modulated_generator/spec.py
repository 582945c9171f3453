from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="image generator: a learned constant, and convolutions whose outputs a style vector scales",
    batch=3,
    inputs={"z": TensorSpec(("N", 14))},
    outputs={"image": TensorSpec(("N", 3, 16, 12), layout="NCHW")},
)
