"""ONNX files on OpenVINO, where ``--on openvino`` asks for it."""

from __future__ import annotations

from pathlib import Path

from xverify.formats import _onnx_file as onnx_file
from xverify.formats._openvino import OnOpenVINO


class Adapter(OnOpenVINO):
    name = "onnx-openvino"
    title = "ONNX file"
    on_request = True

    @classmethod
    def recognises(cls, path: Path) -> bool:
        return onnx_file.looks_like(path)

    @classmethod
    def check(cls, path: Path) -> None:
        onnx_file.check(path)
