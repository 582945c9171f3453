from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two densely connected blocks with a transition between them; batch norm before ReLU and convolution",
    task="classification",
    item="image",
    batch=4,
    inputs={"x": TensorSpec(("N", 3, 9, 13), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 8))},
)
