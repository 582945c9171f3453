from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two inverted bottlenecks whose channels are weighted by squeeze-and-excitation",
    task="classification",
    item="image",
    batch=3,
    inputs={"x": TensorSpec(("N", 3, 18, 24), layout="NCHW")},
    outputs={"logits": TensorSpec(("N", 6))},
)
