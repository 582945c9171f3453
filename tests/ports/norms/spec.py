from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="six normalisations, one after the other, in a network that turns an image into unit vectors",
    batch=3,
    inputs={"image": TensorSpec(("N", 3, 14, 11), layout="NCHW")},
    outputs={"tokens": TensorSpec(("N", 20, 8))},
)
