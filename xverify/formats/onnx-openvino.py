"""ONNX files on OpenVINO, where ``--on openvino`` asks for it."""

from xverify.formats._onnx_file import OnnxFile
from xverify.formats._openvino import OnOpenVINO


class Adapter(OnnxFile, OnOpenVINO):
    name = "onnx-openvino"
    on_request = True
