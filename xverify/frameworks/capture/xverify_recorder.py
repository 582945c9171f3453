"""Records the inputs, the outputs and the calls of the layers of a model, on a machine where xverify is not installed.

This file needs numpy and the framework of the model, and nothing else. Copy it to the machine, and write there:

    import xverify_recorder

    with xverify_recorder.Recording("run.safetensors", model) as recording:
        for x in batches:  # arrays of numpy, or tensors of the framework
            recording.call(x)  # calls model(x), and records the call

Then ``xverify judge run.safetensors --reference FOLDER --weights FILE`` says on any other machine whether the model computed what
the reference says, layer by layer. A model of torch, Keras, Flax (nnx) or MLX and a session of ONNX Runtime are recorded with all
their layers; any other function with its inputs and outputs, with the modules of flax.linen that it calls, and with what it gives
to ``tap``.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import platform
import shutil
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Json = dict[str, Any]  # an object of JSON, which may have any values
FORMAT = 1  # of the file; a reader refuses a later one
# Names of dtypes in the header of the file.
DTYPES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8", "bool": "BOOL", "complex64": "C64",
}  # fmt: skip
OUTPUT = 11  # the place of out_proj_weight among the arguments of F.multi_head_attention_forward, as nn.MultiheadAttention calls it
LOWER = ("bfloat16", "float16")  # precisions below float32
# Attributes of MLX's transformers -> torch's names.
MLX_NAMES = {"attention": "self_attn", "self_attention": "self_attn", "cross_attention": "multihead_attn", "ln": "norm"}
EXPOSED = 256  # values of a graph that one run of ONNX Runtime returns


class Recording:
    """A file of recorded calls. It is written when the ``with`` block ends; after an error in the block there is none.

    path: the file, NAME.safetensors. model: the model, or a function of its inputs.
    inputs, outputs: their names, in order; by default those of the model's own parameters, and of a mapping that it returns.
    layers: whether the calls of layers are recorded. keep_weights: whether the file has the weights, and not their digests alone.
    rank, ranks: the number of this process, and of all, where each computes other items of one batch; each writes a file.
    divided: where every process computes a part of each tensor instead: the dimension along which a weight is divided, by its
        name; for the tensors of a layer, by LAYER.inputs and LAYER.outputs; for those of the model, by inputs and outputs. The
        outputs whose sum over all processes is the result have "sum". All others must be the same in every process.
    note: a sentence for the report, such as the settings of a server.
    """

    def __init__(
        self,
        path: str,
        model: Any,
        *,
        inputs: Any = None,
        outputs: Any = None,
        layers: bool = True,
        keep_weights: bool = False,
        rank: int = 0,
        ranks: int = 1,
        divided: Any = None,
        note: str = "",
    ) -> None:
        self.path, self.model, self.inputs, self.outputs = os.fspath(path), model, inputs, outputs
        if not self.path.endswith(".safetensors"):
            raise ValueError(f"{self.path}: name a file that ends with .safetensors")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank is {rank}, and ranks is {ranks}: the ranks are 0 to {ranks - 1}")
        self.adapter, self.records_layers, self.keep_weights = _adapter(model), layers, keep_weights
        self.facts = {"rank": rank, "ranks": ranks, "divided": dict(divided or {}), "note": note}
        self.calls: list[Json] = []
        self.cases: list[Json] = []
        self.kinds: dict[str, str] = {}
        self.counts: dict[str, int] = {}

    def __enter__(self) -> Recording:
        self.store = Store(self.path)
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        try:
            if kind is None:
                if not self.cases:
                    raise RuntimeError(f"{self.path} is not written: nothing was called; use recording.call(...)")
                self.store.write(self.path, self._manifest())
        finally:
            self.store.close()

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model, record the call, and return what the model returns. Arrays of numpy become tensors of the framework."""
        self.adapter.check(self.model)
        args = tuple(self.adapter.tensor(self.model, each) for each in args)
        kwargs = {name: self.adapter.tensor(self.model, each) for name, each in kwargs.items()}
        named = {name: self.adapter.array(value) for name, value in self._named(args, kwargs).items()}
        taken = {name: self.store.add(array) for name, array in named.items() if array is not None}
        if self.cases and set(taken) != set(self.cases[0]["inputs"]):
            raise ValueError(
                f"this call has the inputs {sorted(taken)}, and the first had {sorted(self.cases[0]['inputs'])}"
            )
        before = len(self.calls)
        case: Json = {"inputs": taken}
        self.counts = {}
        try:
            returned = self.adapter.recorded(self, case, args, kwargs)
        except BaseException:
            del self.calls[before:]  # a call that failed is not recorded, where the caller goes on
            raise
        given = {}
        for index, (name, value) in enumerate(_paths(returned)):
            array = self.adapter.array(value)
            if array is not None:
                own = self.outputs[index] if self.outputs and index < len(self.outputs) else name
                given[own] = self.store.add(array)
        self.cases.append(dict(case, outputs=given, dtypes=_lower(returned)))
        return returned

    def tap(self, name: str, inputs: Any, outputs: Any) -> Any:
        """Record one call of a layer that is a plain function. inputs, outputs: tensors, nested or not. Returns the outputs."""
        if not _traced((inputs, outputs)):
            self.end(self.begin(name, "function", inputs), outputs)
        return outputs

    def begin(self, name: str, kind: Any, values: Any) -> Json:
        """Record the inputs of a call of a layer, before the layer can change them. Returns the record."""
        record = {
            "case": len(self.cases),
            "name": name,
            "call": self.counts.get(name, 0),
            "inputs": self._added(values),
            "outputs": [],
            "input_dtype": _lower(values),
            "output_dtype": "",
        }
        self.counts[name] = self.counts.get(name, 0) + 1
        self.kinds[name] = kind
        self.calls.append(record)
        return record

    def end(self, record: Json, values: Any) -> None:
        """Record the outputs of this call."""
        record["outputs"], record["output_dtype"] = self._added(values), _lower(values)

    def _added(self, values: Any) -> list[str]:
        arrays = (self.adapter.array(value) for value in _unique(values))
        return [self.store.add(array) for array in arrays if array is not None]

    def _named(self, args: Any, kwargs: Any) -> Json:
        """Name -> value of the arguments."""
        names = list(self.inputs or self.adapter.parameters(self.model))
        names += [f"input{index}" for index in range(len(names), len(args))]
        named = dict(zip(names, args), **kwargs)
        only = next(iter(named.values()), None)
        return dict(_paths(only if len(named) == 1 and isinstance(only, dict) else named))

    def _manifest(self) -> Json:
        weights = {}
        kinds = {name: type(layer).__name__ for name, layer in _alone(self.adapter.layers(self.model))}
        for name, array in self.adapter.weights(self.model):
            plain = np.ascontiguousarray(array, dtype=np.float32)
            weights[name] = {"shape": list(array.shape), "sha256": hashlib.sha256(plain.tobytes()).hexdigest()}
            if self.keep_weights:
                weights[name]["array"] = self.store.add(plain)
        return dict(
            self.facts,
            format=FORMAT,
            framework=self.adapter.name,
            channels_last=self.adapter.channels_last,
            graph=self.adapter.graph(self.model) if self.records_layers else None,
            environment=dict(self.adapter.environment(self.model), python=platform.python_version()),
            machine={"system": platform.platform(), "processor": _processor(), "host_byteorder": sys.byteorder},
            cases=self.cases,
            layers={**(kinds if self.records_layers else {}), **self.kinds},
            calls=self.calls,
            weights=weights,
            digests=self.store.digests,
        )


class Store:
    """Arrays in a temporary file beside the final one. Equal arrays are stored once."""

    def __init__(self, path: str) -> None:
        self.part = f"{path}.part"
        self.file = open(self.part, "wb")  # noqa: SIM115 (closed by the recording)
        self.header: Json = {}
        self.digests: dict[str, str] = {}
        self.known: dict[Any, str] = {}

    def add(self, array: Any) -> str:
        """Store an array. Returns its name."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        dtype = DTYPES.get(array.dtype.name)
        if dtype is None:
            raise TypeError(f"an array of dtype {array.dtype} cannot be recorded")
        data = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
        digest = hashlib.blake2b(data, digest_size=16).hexdigest()
        key = dtype, array.shape, digest
        if key not in self.known:
            name, begin = str(len(self.known)), self.file.tell()
            self.file.write(data)
            self.header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [begin, begin + len(data)]}
            self.known[key], self.digests[name] = name, digest
        return self.known[key]

    def write(self, path: str, manifest: Json) -> None:
        """Write the file: the header, then the arrays."""
        self.file.close()
        header = {"__metadata__": {"xverify_capture": json.dumps(manifest)}, **self.header}
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(f"{path}.new", "wb") as made, open(self.part, "rb") as arrays:
            made.write(struct.pack("<Q", len(text)) + text)
            shutil.copyfileobj(arrays, made, 2**22)
        os.replace(f"{path}.new", path)

    def close(self) -> None:
        """Remove the temporary files."""
        self.file.close()
        for path in (self.part, f"{self.part[:-5]}.new"):
            if os.path.exists(path):
                os.remove(path)


class _Function:
    """A function of any framework. The adapters of frameworks are derived from it."""

    name = "function"
    method = "__call__"  # with which a layer computes
    channels_last = False  # whether images are N,H,W,C

    def check(self, model: Any) -> None:
        """Raise an error where a call would not be one of inference."""

    def tensor(self, model: Any, value: Any) -> Any:
        """An argument as the model takes it."""
        return value

    def array(self, value: Any) -> Any:
        """A tensor as an array; None for another value. numpy has no bfloat16, whose values float32 holds exactly."""
        if not (hasattr(value, "shape") and hasattr(value, "dtype")):
            return None
        found = np.asarray(value)
        if found.dtype.kind in "fiubc" and found.dtype.name in DTYPES:
            return found
        return found.astype(np.float32) if "float" in found.dtype.name else None

    def run(self, model: Any, args: Any, kwargs: Any) -> Any:
        return model(*args, **kwargs)

    def recorded(self, recording: Recording, case: Json, args: Any, kwargs: Any) -> Any:
        """Call the model, record its layers, and return what it returns. case: gets what else is recorded of this call.

        What JAX has compiled shows no layers. So they are recorded in a second pass, which runs operation by operation.
        """
        model, before, jax = recording.model, len(recording.calls), sys.modules.get("jax")
        with self.watching(recording):
            returned = self.run(model, args, kwargs)
        if jax is not None and any(isinstance(each, jax.Array) for _, each in _paths(returned)):
            del recording.calls[before:]
            recording.counts = {}
            with self.watching(recording), jax.disable_jit():
                self.run(model, args, kwargs)
        return returned

    def parameters(self, model: Any) -> list[str]:
        """The names of the parameters of a call."""
        try:
            found = inspect.signature(self.called(model)).parameters.values()
        except (TypeError, ValueError):
            return []
        return [each.name for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]

    def called(self, model: Any) -> Any:
        return model

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """The layers by torch's names."""
        return []

    def weights(self, model: Any) -> Iterable[tuple[str, Any]]:
        """The names and arrays of the weights."""
        return []

    def graph(self, model: Any) -> Json | None:
        """The graph of a model whose values are recorded in the place of calls of layers."""
        return None

    def environment(self, model: Any) -> Json:
        """Versions and settings that change numbers."""
        names = ("jax", "flax", "keras", "tensorflow", "torch", "mlx.core", "onnxruntime", "numpy")
        versions = ((name, getattr(sys.modules.get(name), "__version__", None)) for name in names)
        found: Json = {name.partition(".")[0]: str(version) for name, version in versions if version}
        if "jax" in found and sys.modules["jax"].default_backend() != "cpu":
            found["gpu"] = sys.modules["jax"].devices()[0].device_kind
        return found

    @contextlib.contextmanager
    def watching(self, recording: Recording) -> Iterator[None]:
        """A context in which the calls of layers are recorded, with those of modules of flax.linen."""
        if not recording.records_layers:
            yield
            return

        def called(function: Any, args: Any, kwargs: Any, context: Any) -> Any:
            if context.method_name != "__call__" or not context.module.path:
                return function(*args, **kwargs)
            self.channels_last = True
            name, kind = ".".join(context.module.path), type(context.module).__name__
            return _recorded(function, name, kind, recording)(*args, **kwargs)

        linen, layers = sys.modules.get("flax.linen"), _alone(self.layers(recording.model))
        modules = contextlib.nullcontext() if linen is None else linen.intercept_methods(called)
        with modules, _recording(layers, self.method, recording), self.around(recording.model):
            yield

    def around(self, model: Any) -> contextlib.AbstractContextManager[Any]:
        """A context in which the layers are called so that they can be recorded."""
        return contextlib.nullcontext()


class _Torch(_Function):
    name, method = "torch", "forward"

    def __init__(self) -> None:
        self.torch = sys.modules["torch"]

    def check(self, model: Any) -> None:
        if model.training:
            raise RuntimeError("the model is in training mode: call model.eval() before it is recorded")

    def tensor(self, model: Any, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        first = next(iter(model.parameters()), None)
        return self.torch.from_numpy(value.copy()).to("cpu" if first is None else first.device)

    def array(self, value: Any) -> Any:
        if not isinstance(value, self.torch.Tensor):
            return None
        value = value.detach()
        if hasattr(value, "full_tensor"):  # a tensor that is divided among processes; all of them get here
            value = value.full_tensor()
        value = value.cpu()
        lower = value.is_floating_point() and str(value.dtype)[6:] not in DTYPES
        return (value.float() if lower else value).numpy()

    def run(self, model: Any, args: Any, kwargs: Any) -> Any:
        with self.torch.inference_mode():
            return model(*args, **kwargs)

    def called(self, model: Any) -> Any:
        return model.forward

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        """The modules of a model, without those that compute its weights."""
        named = model.named_modules()
        return [(name, module) for name, module in named if name and "parametrizations" not in name.split(".")]

    def weights(self, model: Any) -> Iterable[tuple[str, Any]]:
        seen = set()
        for name, tensor in model.state_dict().items():
            place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
            if tensor.is_floating_point() and (tensor.numel() == 0 or place not in seen):
                yield name, self.array(tensor)
            seen.add(place)

    @contextlib.contextmanager
    def around(self, model: Any) -> Iterator[None]:
        """A context in which a function that is given the weights of an nn.Linear calls the layer, as nn.MultiheadAttention's."""
        functional, mha = self.torch.nn.functional, self.torch.backends.mha
        linear, attention, fast = functional.linear, functional.multi_head_attention_forward, mha.get_fastpath_enabled()
        owners: dict[int, list[Any]] = {}
        for layer in model.modules():
            if isinstance(layer, self.torch.nn.Linear) and layer._parameters.get("weight") is not None:
                owners.setdefault(id(layer.weight), []).append(layer)

        def owner(weight: Any, bias: Any) -> Any:
            layers = owners.get(id(weight), [])
            return layers[0] if len(layers) == 1 and layers[0].bias is bias else None

        def called(input: Any, weight: Any, bias: Any = None) -> Any:  # the names of torch's arguments
            layer = owner(weight, bias)
            own = layer is None or sys._getframe(1).f_locals.get("self") is layer  # the layer's own code computes
            return linear(input, weight, bias) if own else layer(input)

        def attended(*args: Any, **kwargs: Any) -> Any:
            layer = owner(*args[OUTPUT : OUTPUT + 2]) if len(args) > OUTPUT + 1 else None
            if layer is None:
                return attention(*args, **kwargs)
            unit = self.torch.eye(layer.in_features, dtype=layer.weight.dtype, device=layer.weight.device)
            found, weights = attention(*args[:OUTPUT], unit, None, *args[OUTPUT + 2 :], **kwargs)
            swap = found.dim() == 3  # the layer gets items first
            found = layer(found.transpose(0, 1) if swap else found)
            return (found.transpose(0, 1) if swap else found), weights

        functional.linear, functional.multi_head_attention_forward = called, attended
        mha.set_fastpath_enabled(False)
        try:
            yield
        finally:
            functional.linear, functional.multi_head_attention_forward = linear, attention
            mha.set_fastpath_enabled(fast)

    def environment(self, model: Any) -> Json:
        torch = self.torch
        devices = {str(each.device) for each in model.parameters()} or {"cpu"}
        found = {"torch": torch.__version__, "devices": sorted(devices), "threads": torch.get_num_threads()}
        found["weights"] = sorted({str(each.dtype)[6:] for each in model.parameters()})
        if any(each.startswith("cuda") for each in devices):
            found["gpu"] = torch.cuda.get_device_name()
            found["cuda"], found["cudnn"] = torch.version.cuda, torch.backends.cudnn.version()
            found["tf32_matmul"] = torch.backends.cuda.matmul.allow_tf32
            found["tf32_cudnn"] = torch.backends.cudnn.allow_tf32
        return found


class _Modules(_Function):
    """Models of nested modules whose attributes have the names of torch's modules, and whose images are N,H,W,C."""

    channels_last = True
    kind: Any  # the class of modules

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        return [(name, layer) for name, layer in self._below(model, "", set()) if name and callable(layer)]

    def _below(self, value: Any, name: str, seen: set[int]) -> Iterator[tuple[str, Any]]:
        inner: Iterable[tuple[Any, Any]] = []
        if isinstance(value, Mapping):
            inner = value.items()
        elif isinstance(value, Sequence) and not isinstance(value, str):
            inner = enumerate(value)
        elif isinstance(value, self.kind):
            inner = vars(value).items()
        if id(value) in seen:
            return
        seen.add(id(value))
        if isinstance(value, self.kind):
            yield str(getattr(value, "canonical_name", name)), value
        for key, part in list(inner):
            silent = type(value).__name__ == "Sequential" and key == "layers"  # torch names the items themselves
            yield from self._below(
                part, name if silent else f"{name}.{self.name_of(value, str(key))}".lstrip("."), seen
            )

    def name_of(self, owner: Any, key: str) -> str:
        """Torch's name of an attribute of a module."""
        return key


class _Flax(_Modules):
    name = "flax"

    def __init__(self) -> None:
        self.kind = sys.modules["flax.nnx"].Module

    def check(self, model: Any) -> None:
        for name, layer in self.layers(model):
            if False in (getattr(layer, "use_running_average", True), getattr(layer, "deterministic", True)):
                raise RuntimeError(f"{name} is in training mode: call model.eval() before it is recorded")

    def tensor(self, model: Any, value: Any) -> Any:
        return sys.modules["jax"].numpy.asarray(value) if isinstance(value, np.ndarray) else value

    def array(self, value: Any) -> Any:
        return super().array(value[...] if isinstance(value, sys.modules["flax.nnx"].Variable) else value)


class _Mlx(_Modules):
    name = "mlx"

    def __init__(self) -> None:
        self.core, self.kind = sys.modules["mlx.core"], sys.modules["mlx.nn"].Module

    def check(self, model: Any) -> None:
        if model.training:
            raise RuntimeError("the model is in training mode: call model.eval() before it is recorded")

    def tensor(self, model: Any, value: Any) -> Any:
        return self.core.array(value) if isinstance(value, np.ndarray) else value

    def array(self, value: Any) -> Any:
        lower = isinstance(value, self.core.array) and value.dtype == self.core.bfloat16
        return super().array(value.astype(self.core.float32) if lower else value)

    def name_of(self, owner: Any, key: str) -> str:
        if not type(owner).__name__.startswith("Transformer"):
            return key
        return MLX_NAMES.get(key, f"norm{key[2:]}" if key[:2] == "ln" else key)

    @contextlib.contextmanager
    def around(self, model: Any) -> Iterator[None]:
        self.core.disable_compile()  # what is compiled shows no layers
        try:
            yield
        finally:
            self.core.enable_compile()

    def environment(self, model: Any) -> Json:
        return dict(super().environment(model), device=str(self.core.default_device()))


class _Keras(_Function):
    name, method = "keras", "call"

    def __init__(self) -> None:
        self.keras = sys.modules["keras"]
        self.channels_last = self.keras.config.image_data_format() == "channels_last"

    def array(self, value: Any) -> Any:
        tensor = self.keras.ops.is_tensor(value) or isinstance(value, self.keras.Variable)
        return super().array(self.keras.ops.convert_to_numpy(value) if tensor else value)

    def run(self, model: Any, args: Any, kwargs: Any) -> Any:
        return model(*args, **({"training": False, **kwargs} if isinstance(model, self.keras.Model) else kwargs))

    def called(self, model: Any) -> Any:
        return model.call

    def layers(self, model: Any) -> list[tuple[str, Any]]:
        found = []
        for layer in model._flatten_layers(include_self=False, recursive=False):
            if not isinstance(layer, (self.keras.Model, self.keras.layers.InputLayer)):
                inner: Any = getattr(layer, "forward_layer", getattr(layer, "layer", None))  # of a wrapper
                wrapper = inner is not None and (_is_named(inner) or not _is_named(layer))
                name = inner.name.replace("forward_", "", 1) if wrapper else layer.name
                found.append((str(getattr(layer, "canonical_name", name)), layer))
            own = (each for each in type(layer).__mro__ if each.__module__.startswith("keras.src.layers."))
            if {each.__name__ for each in own} <= {"Layer", "RNN"}:  # Keras' other layers are judged as a whole
                found += self.layers(layer)
        return found

    def environment(self, model: Any) -> Json:
        return dict(super().environment(model), backend=self.keras.config.backend())


def _is_named(layer: Any) -> bool:
    """Whether a layer of Keras has a name of its own, and not one that is made of its class, such as "lstm_1"."""
    own = layer.name.replace("forward_", "", 1).rstrip("0123456789").replace("_", "")
    return bool(own != type(layer).__name__.lower())


class _OnnxRuntime(_Function):
    """A session of ONNX Runtime. Its outputs are those of the session; the values of its nodes are those of the graph as it is
    written, which the same providers run without optimisations."""

    name = "onnxruntime"

    def run(self, model: Any, args: Any, kwargs: Any) -> Any:
        return model.run(None, dict(zip(self.parameters(model), args), **kwargs))

    def parameters(self, model: Any) -> list[str]:
        return [each.name for each in model.get_inputs()]

    def recorded(self, recording: Recording, case: Json, args: Any, kwargs: Any) -> Any:
        model = recording.model
        returned = self.run(model, args, kwargs)
        if recording.records_layers:
            names = self._crossing(model)
            for start in range(0, len(names), EXPOSED):
                part = names[start : start + EXPOSED]
                values = zip(part, self._exposed(model, part, dict(zip(self.parameters(model), args), **kwargs)))
                found = {name: self.array(value) for name, value in values}
                stored = {name: recording.store.add(array) for name, array in found.items() if array is not None}
                case.setdefault("values", {}).update(stored)
        return returned

    def _bytes(self, model: Any) -> bytes:
        if model._model_path is None:
            return bytes(model._model_bytes)
        with open(model._model_path, "rb") as file:
            return file.read()

    def graph(self, model: Any) -> Json:
        """Its nodes, the names of its initializers and of its outputs. The numbers are those of fields in onnx.proto."""
        (graph,) = (value for number, value in _fields(self._bytes(model)) if number == 7)
        found: Json = {"nodes": [], "initializers": [], "outputs": [each.name for each in model.get_outputs()]}
        for number, value in _fields(graph):
            if number == 1:
                node: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
                for kind, text in _fields(value):
                    if kind in node:
                        node[kind].append(bytes(text).decode())
                found["nodes"].append(["".join(node[3]), "".join(node[4]), node[1], node[2]])
            elif number == 5:
                found["initializers"] += [bytes(text).decode() for kind, text in _fields(value) if kind == 8]
        return found

    def _crossing(self, model: Any) -> list[str]:
        """The values that leave a layer, whose nodes have names with one beginning: /layer1/conv/Conv."""
        graph = self.graph(model)
        scopes = {value: name.rpartition("/")[0] for name, _, _, values in graph["nodes"] for value in values if value}
        taken = {(value, name.rpartition("/")[0]) for name, _, values, _ in graph["nodes"] for value in values}
        crossing = {value for value, scope in taken if value in scopes and scopes[value] != scope}
        return sorted(crossing | (set(graph["outputs"]) & set(scopes)))

    def _exposed(self, model: Any, names: list[str], feed: Json) -> list[Any]:
        """The values of these names. The outputs of a graph are appended to its file, because parts of a message are joined."""
        ort = sys.modules["onnxruntime"]
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        known = {each.name for each in model.get_outputs()}
        outputs = b"".join(_message(12, _message(1, name.encode())) for name in names if name not in known)
        graph: Any = self._bytes(model) + _message(7, outputs)
        path = model._model_path and f"{model._model_path}.{os.getpid()}"  # beside the file of its weights
        if path:
            with open(path, "wb") as file:
                file.write(graph)
        try:
            providers = list(model.get_provider_options().items())
            return list(ort.InferenceSession(path or graph, options, providers=providers).run(names, feed))
        finally:
            if path:
                os.remove(path)

    def environment(self, model: Any) -> Json:
        return dict(super().environment(model), providers=model.get_providers())


def _fields(data: Any) -> Iterator[tuple[int, Any]]:
    """(number, value) of the fields of a message of protobuf that hold bytes, or a number."""
    data, place = memoryview(data), 0

    def number() -> int:
        nonlocal place
        found = shift = 0
        while True:
            byte = data[place]
            found, shift, place = found | (byte & 127) << shift, shift + 7, place + 1
            if byte < 128:
                return found

    while place < len(data):
        field, kind = divmod(number(), 8)
        size = number() if kind in (0, 2) else 8 if kind == 1 else 4
        if kind == 2:
            yield field, data[place : place + size]
        place += size if kind else 0


def _message(number: int, data: bytes) -> bytes:
    """A field of protobuf that holds bytes."""
    size, left = b"", len(data)
    while left > 127:
        size, left = size + bytes([left & 127 | 128]), left >> 7
    return bytes([number << 3 | 2]) + size + bytes([left]) + data


def _adapter(model: Any) -> _Function:
    """What knows the framework of a model."""
    found = {
        "keras": ("Layer", _Keras),  # before torch, because it may be its backend
        "torch.nn": ("Module", _Torch),
        "flax.nnx": ("Module", _Flax),
        "mlx.nn": ("Module", _Mlx),
        "onnxruntime": ("InferenceSession", _OnnxRuntime),
    }
    for module, (kind, adapter) in found.items():
        if module in sys.modules and isinstance(model, getattr(sys.modules[module], kind)):
            return adapter()
    if not callable(model):
        raise TypeError(f"a {type(model).__name__} is no model and no function: give one that can be called")
    return _Function()


def _recorded(original: Any, name: str, kind: Any, recording: Recording) -> Callable[..., Any]:
    """A function that records its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if _traced((args, kwargs)):
            return original(*args, **kwargs)
        record = recording.begin(name, kind, (args, kwargs))
        returned = original(*args, **kwargs)
        recording.end(record, returned)
        return returned

    return call


def _alone(layers: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The layers without those that have a name in common, such as the two directions of an LSTM."""
    names = [name for name, _ in layers]
    return [(name, layer) for name, layer in layers if names.count(name) == 1]


@contextlib.contextmanager
def _recording(layers: list[tuple[str, Any]], method: str, recording: Recording) -> Iterator[None]:
    """A context in which the calls of this method of the layers are recorded. layers: name and layer."""
    changed: list[tuple[Any, str, Any]] = []
    try:
        for name, layer in layers:
            kind, original = type(layer), getattr(layer, method)
            call = _recorded(original, name, kind.__name__, recording)
            changed.append(
                (layer, "__class__", kind) if method == "__call__" else (layer, method, vars(layer).get(method))
            )
            if method == "__call__":  # Python looks such a method up in the class
                own = {method: lambda self, *args, _call=call, **kwargs: _call(*args, **kwargs)}
                object.__setattr__(layer, "__class__", type(kind.__name__, (kind,), own))
            else:
                object.__setattr__(layer, method, call)
        yield
    finally:
        for layer, name, had in changed:
            if had is None:
                object.__delattr__(layer, name)
            else:
                object.__setattr__(layer, name, had)


def _traced(values: Any) -> bool:
    """Whether a value is one of a function that is being compiled, and has no numbers."""
    kinds = (kind.__name__ for _, value in _paths(values) for kind in type(value).__mro__)
    return any("Tracer" in name or "Symbolic" in name for name in kinds)


def _parts(value: Any) -> list[tuple[str, Any]] | None:
    """The parts of a container with their keys; None for everything else."""
    if hasattr(value, "items") and hasattr(value, "keys"):
        return [(str(key), part) for key, part in value.items()]
    if isinstance(value, (tuple, list)):
        return list(zip(getattr(value, "_fields", map(str, range(len(value)))), value))
    fields = getattr(value, "__dataclass_fields__", None)
    if fields and not isinstance(value, type) and not hasattr(value, "dtype"):
        return [(name, getattr(value, name)) for name in fields if hasattr(value, name)]
    return None


def _paths(value: Any, before: str = "") -> list[tuple[str, Any]]:
    """(path, value) of everything in a nested structure that is no container and not None."""
    inner = _parts(value)
    if inner is None:
        return [] if value is None else [(before, value)]
    return [each for key, part in inner for each in _paths(part, f"{before}.{key}" if before else key)]


def _unique(values: Any) -> list[Any]:
    """Everything in a nested structure that is no container; an object that occurs twice is given once."""
    return list({id(value): value for _, value in _paths(values)}.values())


def _lower(values: Any) -> str:
    """The first precision below float32 among the tensors of a nested structure; "" without one."""
    dtypes = [str(getattr(value, "dtype", "")).split(".")[-1] for _, value in _paths(values)]
    return next((name for name in LOWER if name in dtypes), "")


def _processor() -> str:
    """The name of the processor."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            lines = [line for line in file if line.startswith("model name")]
        return lines[0].split(":", 1)[1].strip()
    except (OSError, IndexError):
        return platform.processor() or platform.machine()
