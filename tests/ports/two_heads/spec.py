from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="a detector of points: for each cell the probability of each class, and the size of the object",
    batch=2,
    inputs={"image": TensorSpec(("N", 3, 12, 20), layout="NCHW")},
    outputs={
        "heat": TensorSpec(("N", 4, 6, 10), layout="NCHW"),
        "size": TensorSpec(("N", 2, 6, 10), layout="NCHW"),
    },
)
