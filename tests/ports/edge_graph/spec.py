from xverify import Loss, ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="messages along the edges of one graph, whose nodes and edges are no items of a batch",
    batch=None,
    item="graph",
    inputs={
        "nodes": TensorSpec((30, 6)),
        "edges": TensorSpec((2, 80), dtype="int64", low=0, high=30),
        "graph": TensorSpec((30,), dtype="int64", low=0, high=5),
    },
    outputs={"classes": TensorSpec((30, 4)), "score": TensorSpec((5, 3))},
    targets={"classes": TensorSpec((30,), dtype="int64", low=0, high=4), "score": TensorSpec((5, 3))},
    loss=[
        Loss("cross_entropy", output="classes", target="classes"),
        Loss("mse", output="score", target="score"),
    ],
)
