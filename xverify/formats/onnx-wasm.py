"""ONNX files on onnxruntime-web, where ``--on onnxruntime-web:wasm`` asks for it."""

from xverify.formats._onnx_web import OnWeb


class Adapter(OnWeb):
    name = "onnx-wasm"
    runtime = "onnxruntime-web:wasm"
