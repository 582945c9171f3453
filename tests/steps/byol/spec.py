from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"view1": TensorSpec(("N", 10))},
    outputs={"p": TensorSpec(("N", 8))},
    targets={"view2": TensorSpec(("N", 10))},
    batch=12,
    description="BYOL: a student predicts what its teacher, a moving average of it, makes of another view",
)
