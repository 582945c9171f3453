from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="a flow with an invertible matrix: log|det| where torch has slogdet, a scalar output, a variance in two steps",
    batch=4,
    inputs={"x": TensorSpec(("N", 5, 6))},
    outputs={"z": TensorSpec(("N", 5, 6)), "likelihood": TensorSpec(())},
)
