"""ONNX, exported by torch. float16 and int8 are made of it by ONNX Runtime's own tools."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from pathlib import Path

from xverify.converters._onnx_layers import layers_of, named, nodes_of, shield, without_double_casts
from xverify.framework.adapter import Array
from xverify.framework.converter import DYNAMO, FLOAT16, INT8, Converter, Job, Layer, Step, need

SHOWN = 10  # names of layers that a phrase tells
LARGEST = 1.8e9  # bytes of weights in one file; a file of protobuf holds 2 GiB at most
_NARROWING = {FLOAT16: (Step("onnxruntime", "halve", False),), INT8: (Step("onnxruntime", "quantize", False),)}


class Adapter(Converter):
    name = "onnx"
    title = "ONNX file"
    suffixes = (".onnx",)
    mixes = True

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        return Step("torch", "export"), *_NARROWING.get(quantize or "", ())

    @classmethod
    def steps_of_file(cls, runtime: str, quantize: str | None) -> tuple[Step, ...]:
        if runtime != "tensorflow":
            return ()
        return Step("tensorflow", "translate", module="tf2onnx"), *_NARROWING.get(quantize or "", ())

    @classmethod
    def layers(cls, source: Path, quantize: str) -> tuple[Layer, ...]:
        import onnx

        if quantize == FLOAT16:
            return layers_of(named(onnx.load(source, load_external_data=False)).graph)
        from onnxruntime.quantization.registry import QDQRegistry, QLinearOpsRegistry

        return layers_of(onnx.load(_prepared(source)).graph, {*QDQRegistry, *QLinearOpsRegistry})

    @classmethod
    def export(cls, job: Job) -> str:
        """Export the model with torch.onnx."""
        from xverify.frameworks.torch.outputs import in_order

        torch, dynamo = job.framework.torch, job.exporter == DYNAMO
        settings: dict[str, object] = {}
        if dynamo:
            need("onnxscript", "torch.onnx with --exporter dynamo")
            weights = sum(tensor.numel() * tensor.element_size() for tensor in job.model.state_dict().values())
            settings["external_data"] = weights > LARGEST
        with torch.no_grad(), warnings.catch_warnings(), in_order(job.model, job.native[0], list(job.outputs)):
            warnings.simplefilter("ignore")  # warnings of deprecation go to the log otherwise, once for each operator
            torch.onnx.export(
                job.model,
                job.native[0],
                str(job.path),
                input_names=list(job.inputs),
                output_names=list(job.outputs),
                dynamo=dynamo,
                **settings,
            )
        return f"torch.onnx.export of torch {torch.__version__}, the {job.exporter} exporter"

    @classmethod
    def translate(cls, job: Job) -> str:
        """Translate a model of TensorFlow with tf2onnx."""
        import tf2onnx

        from xverify.converters._tensorflow import served

        found = served(job)
        example = [
            job.framework.tf.TensorSpec(each.shape, each.dtype, name=name)
            for name, each in zip(job.inputs, job.native[0])
        ]
        tf2onnx.convert.from_function(found.module.serve, input_signature=example, output_path=str(job.path))
        return f"tf2onnx.convert.from_function of tf2onnx {tf2onnx.__version__}"

    @classmethod
    def halve(cls, job: Job) -> str:
        """Convert weights and operators of an ONNX file to float16; its inputs and outputs stay as they are."""
        need("packaging", "ONNX Runtime's converter to float16")
        import onnx
        from onnxruntime.transformers.float16 import convert_float_to_float16
        from onnxruntime.transformers.onnx_model import OnnxModel

        source = named(onnx.load(job.source))
        kept = nodes_of(layers_of(source.graph), job.keep) if job.keep else []
        model = OnnxModel(convert_float_to_float16(source, keep_io_types=True, node_block_list=kept))
        if kept:
            without_double_casts(model.model.graph)
        model.topological_sort()  # the converter appends its Cast nodes at the end
        onnx.save(model.model, job.path)
        version = job.framework.ort.__version__
        return f"onnxruntime.transformers.float16 of onnxruntime {version}; inputs and outputs stay float32{_kept(job)}"

    @classmethod
    def quantize(cls, job: Job) -> str:
        """Quantise an ONNX file to 8 bits, weights and activations, with the input cases for calibration."""
        need("sympy", "ONNX Runtime's quantisation")
        import onnx
        from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

        class Cases(CalibrationDataReader):
            def __init__(self, cases: Iterator[dict[str, Array]]) -> None:
                self.cases = cases

            def get_next(self) -> dict[str, Array] | None:
                return next(self.cases, None)

        assert job.source is not None
        settings: dict[str, object] = {}
        if "calibration_cache_path" in inspect.signature(quantize_static).parameters:
            settings["calibration_cache_path"] = job.source.with_name("ranges.json")  # for further files of this source
        kept = nodes_of(cls.layers(job.source, INT8), job.keep) if job.keep else []
        quantize_static(
            str(_prepared(job.source)),
            str(job.path),
            Cases(job.cases()),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
            nodes_to_exclude=kept,
            **settings,
        )
        if kept:
            model = onnx.load(job.path)
            shield(model.graph, set(kept))
            onnx.save(model, job.path)
        version, cases = job.framework.ort.__version__, len(list(job.cases()))
        return (
            f"onnxruntime.quantization.quantize_static of onnxruntime {version}: QDQ, activations uint8, weights int8 per channel, "
            f"calibrated with {cases} input cases{_kept(job)}"
        )


def _prepared(source: Path) -> Path:
    """The file that is quantised, made of the export by ONNX Runtime when it is asked for first. Its nodes have names."""
    path = source.with_name("prepared.onnx")
    if not path.exists():
        import onnx
        from onnxruntime.quantization.shape_inference import quant_pre_process

        quant_pre_process(str(source), str(path), skip_symbolic_shape=True)
        model = onnx.load(path)
        if not all(node.name for node in model.graph.node):
            onnx.save(named(model), path)
    return path


def _kept(job: Job) -> str:
    """The layers that stay in float32, for the phrase that a step returns."""
    more = f" and {len(job.keep) - SHOWN} more" if len(job.keep) > SHOWN else ""
    return f"; in float32: {', '.join(job.keep[:SHOWN])}{more}" if job.keep else ""
