from xverify import Group, ModelSpec, Recipe, Schedule, TensorSpec

WORDS, LENGTH = 40, 8

SPEC = ModelSpec(
    description="a small encoder that predicts masked tokens; the loss is in the model files and leaves out all other tokens",
    batch=4,
    inputs={"tokens": TensorSpec(("N", LENGTH), "int64", low=0, high=WORDS)},
    outputs={"logits": TensorSpec(("N", LENGTH, WORDS))},
    targets={"labels": TensorSpec(("N", LENGTH), "int64", low=0, high=WORDS, ignore_index=-100)},
    training=Recipe(
        groups=(Group("*.bias", weight_decay=0.0), Group("*norm*.weight", weight_decay=0.0)),
        clip_norm=1.0,
        schedule=Schedule("cosine", steps=100, warmup=10),
        accumulate=2,
    ),
)
