from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"z": TensorSpec(("N", 6))},
    outputs={"image": TensorSpec(("N", 1, 8, 8), layout="NCHW")},
    targets={"real": TensorSpec(("N", 1, 8, 8), "float32", -1.0, 1.0, layout="NCHW")},
    batch=8,
    description="DCGAN: transposed convolutions, batch norms, and one Adam for each network",
)
