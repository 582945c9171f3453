from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3))})
