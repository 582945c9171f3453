from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"sound": TensorSpec(("N", 16, 6))},
    outputs={"logits": TensorSpec(("N", 16, 8))},
    targets={
        "labels": TensorSpec(("N", 5), "int64", 1, 8),
        "label_lengths": TensorSpec(("N",), "int64", 2, 6),
        "lengths": TensorSpec(("N",), "int64", 11, 17),
    },
    batch=6,
    description="CTC with sequences and labels of several lengths; the blank is class 0",
)
