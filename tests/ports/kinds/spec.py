from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="one layer of each kind that has weights, every size an option",
    batch=2,
    inputs={"x": TensorSpec(("N", 3, 9, 10), layout="NCHW")},
    outputs={"y": TensorSpec(("N", 4))},
    options={"width": 5, "kernel": (2, 3)},
)
