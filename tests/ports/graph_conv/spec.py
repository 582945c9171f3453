from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="two graph convolutions over a weighted, directed graph; scores of each node and of the graph",
    batch=3,
    inputs={"nodes": TensorSpec(("N", 7, 10)), "edges": TensorSpec(("N", 7, 7), low=0, high=1)},
    outputs={"nodes": TensorSpec(("N", 7, 5)), "graph": TensorSpec(("N", 3))},
)
