from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="graph attention network: heads of attention along the edges of one graph, with self-loops",
    batch=None,
    item="graph",
    inputs={
        "nodes": TensorSpec((20, 8)),
        "edges": TensorSpec((2, 50), dtype="int64", low=0, high=20),
    },
    outputs={"classes": TensorSpec((20, 5))},
)
