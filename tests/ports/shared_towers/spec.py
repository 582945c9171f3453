from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two images through one encoder, compared by the difference and the product of their embeddings",
    batch=4,
    inputs={
        "left": TensorSpec(("N", 2, 16, 12), layout="NCHW"),
        "right": TensorSpec(("N", 2, 16, 12), layout="NCHW"),
    },
    outputs={"relation": TensorSpec(("N", 3))},
)
