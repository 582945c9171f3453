"""ONNX Runtime with a planted fault; a folder of PYTHONPATH puts it in the place of the real one."""

from planting import plant, real

runtime = real("onnxruntime")


class Session(runtime.InferenceSession):
    def __init__(self, source, sess_options=None, **settings):
        import onnx

        model = onnx.load_from_string(source) if isinstance(source, bytes) else onnx.load(source)
        level = sess_options.graph_optimization_level if sess_options is not None else None
        plant(model, level != runtime.GraphOptimizationLevel.ORT_DISABLE_ALL)
        super().__init__(model.SerializeToString(), sess_options, **settings)


runtime.InferenceSession = Session
