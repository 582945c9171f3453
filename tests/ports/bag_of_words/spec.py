from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="embedding bags (sum, mean, largest) that ports write as an embedding and a reduction; a mean over two axes",
    batch=3,
    inputs={
        "words": TensorSpec(("N", 7), dtype="int64", low=0, high=40),
        "tags": TensorSpec(("N", 5), dtype="int64", low=0, high=12),
        "codes": TensorSpec(("N", 4), dtype="int64", low=0, high=9),
        "image": TensorSpec(("N", 3, 6, 8), layout="NCHW"),
    },
    outputs={"score": TensorSpec(("N", 6))},
)
