from xverify import ModelSpec, TensorSpec

POINTS = TensorSpec(("N", 5, 1), "float32", -5.0, 5.0)
VALUES = TensorSpec(("N", 5, 1))
SPEC = ModelSpec(
    inputs={"support_x": POINTS},
    outputs={"y": VALUES},
    targets={"support_y": VALUES, "query_x": POINTS, "query_y": VALUES},
    batch=4,
    description="MAML of second order: the loss after two inner steps of gradient descent, averaged over tasks",
)
