"""OpenVINO with a planted fault; a folder of PYTHONPATH puts it in the place of the real one."""

from planting import plant, real

runtime = real("openvino")


class Core(runtime.Core):
    def read_model(self, path, *arguments, **settings):
        import onnx

        model = onnx.load(path)
        plant(model, True)
        return super().read_model(model.SerializeToString(), *arguments, **settings)

    def compile_model(self, model, *arguments, **settings):
        model = self.read_model(model) if isinstance(model, str) else model
        return super().compile_model(model, *arguments, **settings)


runtime.Core = Core
