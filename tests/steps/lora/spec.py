from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"y": TensorSpec(("N", 4))},
    targets={"y": TensorSpec(("N", 4))},
    batch=16,
    description="LoRA: two small matrices are trained beside each frozen one",
)
