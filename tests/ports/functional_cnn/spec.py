from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="convolutions with activations, pooling and concatenation as functions, a flattened image at the end",
    batch=3,
    inputs={"image": TensorSpec(("N", 3, 14, 22), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 7))},
)
