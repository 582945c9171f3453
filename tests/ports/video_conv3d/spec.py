from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="3-D convolutions over a short film, the mean over each picture, the maximum over time",
    batch=2,
    inputs={"film": TensorSpec(("N", 3, 6, 12, 20), layout="NCDHW")},
    outputs={"logits": TensorSpec(("N", 5))},
)
