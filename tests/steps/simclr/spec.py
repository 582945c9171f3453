from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"view1": TensorSpec(("N", 10))},
    outputs={"z": TensorSpec(("N", 8))},
    targets={"view2": TensorSpec(("N", 10))},
    batch=8,
    description="SimCLR: the contrastive loss NT-Xent of two views, SGD with coupled weight decay",
)
