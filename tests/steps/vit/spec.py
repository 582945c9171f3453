from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"image": TensorSpec(("N", 3, 8, 8), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 5))},
    targets={"label": TensorSpec(("N",), "int64", 0, 5), "lam": TensorSpec(("N",), "float32", 0.0, 1.0)},
    batch=6,
    description="a small vision transformer with mixup, label smoothing and AdamW in two groups",
)
