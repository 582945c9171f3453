from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="causal convolutions of growing dilation with gates, residual connections and a sum of skip connections",
    batch=3,
    inputs={"signal": TensorSpec(("N", 4, 30), layout="NCL")},
    outputs={"next": TensorSpec(("N", 5, 30), layout="NCL")},
)
