"""ONNX files on onnxruntime-web, where ``--on onnxruntime-web:webgpu`` asks for it."""

from xverify.formats._onnx_web import OnWeb


class Adapter(OnWeb):
    name = "onnx-webgpu"
    runtime = "onnxruntime-web:webgpu"
    webgpu = True
