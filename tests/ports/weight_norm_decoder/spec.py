from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="a decoder of images whose convolutions have a weight norm; the ports fold some of them",
    batch=3,
    inputs={"code": TensorSpec(("N", 6, 7, 5), layout="NCHW")},
    outputs={"image": TensorSpec(("N", 3, 14, 10), layout="NCHW")},
)
