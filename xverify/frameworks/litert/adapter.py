"""LiteRT, formerly TensorFlow Lite. It runs the folder's TensorFlow model, converted with the same weights.

The worker imports TensorFlow, too, which builds the model and converts it when the callable is made. The memory of this subject
contains that of TensorFlow.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Source
from xverify.framework.capture import Recorder
from xverify.framework.structures import leaves, map_leaves
from xverify.frameworks.keras.base import canonical, native
from xverify.frameworks.litert.tflite import convert, serving
from xverify.frameworks.tensorflow.adapter import Adapter as TensorFlow
from xverify.workload.spec import ModelFolder


def xnnpack(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run with the default delegates, which on a processor is XNNPACK."""
    return framework.function(model, example, "AUTO")


def builtin(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Run LiteRT's own kernels, without a delegate."""
    return framework.function(model, example, "BUILTIN_WITHOUT_DEFAULT_DELEGATES")


class Adapter(TensorFlow):
    name = "litert"
    needs = {"ai-edge-litert": "ai_edge_litert", "tensorflow-cpu": "tensorflow"}
    extra = "litert,tensorflow"
    modes = {"xnnpack": xnnpack, "builtin": builtin}
    mode_options = {}
    implicit_mode = "xnnpack"
    captured_mode = ""
    default_modes = ()
    one_size = "the conversion to TensorFlow Lite fixes the sizes of all tensors"
    trains = False

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        from ai_edge_litert import interpreter

        self.litert = interpreter

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        flow = folder.spec.control_flow
        return f"{flow}, which the conversion to TensorFlow Lite cannot hold" if flow else ""

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if float64:
            raise Unsupported("LiteRT computes in the precision of its file, which is float32")
        return super().build(source, options)

    def function(self, model: Any, example: tuple[Any, ...], kernels: str) -> Any:
        """The converted model as a function of its inputs. kernels: the name of an OpResolverType."""
        inputs = {f"input_{i}": array for i, array in enumerate(example)}
        forward, returned = self.forward(model), list[Any]()

        def flat(*tensors: Any) -> list[Any]:
            returned[:] = [forward(*tensors)]
            return leaves(returned[0])

        served = serving(self.tf, model, flat, inputs, ())
        interpreter = self.litert.Interpreter(
            model_content=convert(self.tf, served),
            num_threads=self.threads,
            experimental_op_resolver_type=getattr(self.litert.OpResolverType, kernels),
        )
        interpreter.allocate_tensors()
        runner = interpreter.get_signature_runner()
        details = runner.get_input_details()
        # The converter leaves out an input that no output depends on.
        places = [details[name]["index"] if name in details else None for name in served.inputs]
        results = [runner.get_output_details()[name]["index"] for name in served.outputs]

        def run(*arrays: Array) -> Any:
            for place, array in zip(places, arrays):
                if place is not None:
                    interpreter.set_tensor(place, array)
            interpreter.invoke()
            found = iter([interpreter.get_tensor(index) for index in results])  # copies
            return map_leaves(returned[0], lambda value: None if value is None else next(found))

        return run

    def layers(self, model: Any) -> dict[str, list[Any]]:
        """None: LiteRT does not show the layers of a converted model."""
        return {}

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        return self.modes["xnnpack"](self, model, inputs)(*inputs)

    def user_call(self, model: Any) -> Callable[..., Any] | None:
        return None

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        return None

    def to_native(self, array: Array, layout: str | None) -> Array:
        return native(array, layout)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return canonical(np.asarray(tensor), layout)

    def environment(self) -> dict[str, object]:
        return {**super().environment(), "litert": importlib.metadata.version("ai-edge-litert")}
