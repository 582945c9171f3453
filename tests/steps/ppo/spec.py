from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"obs": TensorSpec(("N", 6))},
    outputs={"logits": TensorSpec(("N", 4)), "value": TensorSpec(("N",))},
    targets={
        "action": TensorSpec(("N",), "int64", 0, 4),
        "old_logp": TensorSpec(("N",), "float32", -2.0, -0.8),
        "old_value": TensorSpec(("N",)),
        "advantage": TensorSpec(("N",)),
        "returns": TensorSpec(("N",)),
    },
    batch=32,
    description="proximal policy optimisation: a clipped ratio, a clipped value loss and an entropy bonus",
)
