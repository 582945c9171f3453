from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="a critic of rows whose linear layers have a spectral norm, in both forms that torch has",
    batch=5,
    inputs={"rows": TensorSpec(("N", 9))},
    outputs={"score": TensorSpec(("N", 4))},
)
