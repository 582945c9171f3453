from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="depthwise and pointwise convolutions with batch norms, ReLU6, hard-swish and a squeeze of the channels",
    batch=4,
    inputs={"image": TensorSpec(("N", 3, 20, 14), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 7))},
)
