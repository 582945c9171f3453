from xverify import Loss, ModelSpec, Recipe, TensorSpec

SPEC = ModelSpec(
    description="a small regression with two outputs, each with a loss of its own",
    batch=8,
    inputs={"x": TensorSpec(("N", 12))},
    outputs={"box": TensorSpec(("N", 4)), "score": TensorSpec(("N", 2))},
    targets={"place": TensorSpec(("N", 4)), "value": TensorSpec(("N", 2), low=-2, high=2)},
    loss=[Loss("huber", "box", "place", delta=0.5), Loss("mse", "score", "value", weight=0.25)],
    training=Recipe(average=0.9),
)
