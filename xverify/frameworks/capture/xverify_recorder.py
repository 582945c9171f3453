"""Records the inputs, the outputs and the calls of the layers of a model, on a machine where xverify is not installed.

This file needs numpy and the framework of the model, and nothing else. Copy it to the machine, and write there:

    import xverify_recorder

    with xverify_recorder.Recording("run.safetensors", model) as recording:
        for x in batches:  # arrays of numpy, or tensors of the framework
            recording.call(x)  # calls model(x), and records the call

Then ``xverify judge run.safetensors --reference FOLDER --weights FILE`` says on any other machine whether the model computed what
the reference says, layer by layer. A model of torch is recorded with all its layers; any other function with its inputs and
outputs, and with what it gives to ``tap``.
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


class Recording:
    """A file of recorded calls. It is written when the ``with`` block ends; after an error in the block there is none.

    path: the file, NAME.safetensors. model: the model, or a function of its inputs.
    inputs, outputs: their names, in order; by default those of the model's own parameters, and of a mapping that it returns.
    layers: whether the calls of layers are recorded. keep_weights: whether the file has the weights, and not their digests alone.
    rank, ranks: the number of this process, and of all, where each computes other items of one batch; each writes a file.
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
        note: str = "",
    ) -> None:
        self.path, self.model, self.inputs, self.outputs = os.fspath(path), model, inputs, outputs
        if not self.path.endswith(".safetensors"):
            raise ValueError(f"{self.path}: name a file that ends with .safetensors")
        if not 0 <= rank < ranks:
            raise ValueError(f"rank is {rank}, and ranks is {ranks}: the ranks are 0 to {ranks - 1}")
        self.adapter, self.records_layers, self.keep_weights = _adapter(model), layers, keep_weights
        self.facts = {"rank": rank, "ranks": ranks, "note": note}
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
        self.counts = {}
        before = len(self.calls)
        try:
            with self.adapter.watching(self.model, self) if self.records_layers else contextlib.nullcontext():
                returned = self.adapter.run(self.model, args, kwargs)
        except BaseException:
            del self.calls[before:]  # a call that failed is not recorded, where the caller goes on
            raise
        given = {}
        for index, (name, value) in enumerate(_paths(returned)):
            array = self.adapter.array(value)
            if array is not None:
                own = self.outputs[index] if self.outputs and index < len(self.outputs) else name
                given[own] = self.store.add(array)
        self.cases.append({"inputs": taken, "outputs": given, "dtypes": _lower(returned)})
        return returned

    def tap(self, name: str, inputs: Any, outputs: Any) -> Any:
        """Record one call of a layer that is a plain function. inputs, outputs: tensors, nested or not. Returns the outputs."""
        place = self.begin(name, "function", inputs)
        self.end(place, outputs)
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
        return dict(zip(names, args), **kwargs)

    def _manifest(self) -> Json:
        weights = {}
        for name, array in self.adapter.weights(self.model):
            plain = np.ascontiguousarray(array, dtype=np.float32)
            weights[name] = {"shape": list(array.shape), "sha256": hashlib.sha256(plain.tobytes()).hexdigest()}
            if self.keep_weights:
                weights[name]["array"] = self.store.add(plain)
        return dict(
            self.facts,
            format=FORMAT,
            framework=self.adapter.name,
            environment=dict(self.adapter.environment(self.model), python=platform.python_version()),
            machine={"system": platform.platform(), "processor": _processor(), "host_byteorder": sys.byteorder},
            cases=self.cases,
            layers={**(self.adapter.layers(self.model) if self.records_layers else {}), **self.kinds},
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

    def parameters(self, model: Any) -> list[str]:
        """The names of the parameters of a call."""
        try:
            found = inspect.signature(self.called(model)).parameters.values()
        except (TypeError, ValueError):
            return []
        return [each.name for each in found if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]

    def called(self, model: Any) -> Any:
        return model

    def layers(self, model: Any) -> dict[str, str]:
        """Name -> class of every layer."""
        return {}

    def weights(self, model: Any) -> Iterable[tuple[str, Any]]:
        """The names and arrays of the weights."""
        return []

    def environment(self, model: Any) -> Json:
        """Versions and settings that change numbers."""
        versions = (
            (name, getattr(sys.modules.get(name), "__version__", None)) for name in ("jax", "tensorflow", "numpy")
        )
        return {name: str(version) for name, version in versions if version}

    def watching(self, model: Any, recording: Recording) -> contextlib.AbstractContextManager[Any]:
        """A context in which the calls of layers are recorded."""
        return contextlib.nullcontext()


class _Torch(_Function):
    name = "torch"

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

    def layers(self, model: Any) -> dict[str, str]:
        return {name: type(module).__name__ for name, module in self._modules(model)}

    def _modules(self, model: Any) -> list[tuple[str, Any]]:
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
    def watching(self, model: Any, recording: Recording) -> Iterator[None]:
        """Record every call of ``forward`` of a module, and products with the weights of a linear layer as calls of that layer."""
        changed = []
        try:
            for name, layer in self._modules(model):
                had, original = vars(layer).get("forward"), layer.forward
                object.__setattr__(layer, "forward", _recorded(original, name, type(layer).__name__, recording))
                changed.append((layer, had))
            with self._called_by_weights(model):
                yield
        finally:
            for layer, had in changed:
                if had is None:
                    object.__delattr__(layer, "forward")
                else:
                    object.__setattr__(layer, "forward", had)

    @contextlib.contextmanager
    def _called_by_weights(self, model: Any) -> Iterator[None]:
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


def _adapter(model: Any) -> _Function:
    """What knows the framework of a model."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(model, torch.nn.Module):
        return _Torch()
    if not callable(model):
        raise TypeError(f"a {type(model).__name__} is no model and no function: give one that can be called")
    return _Function()


def _recorded(original: Any, name: str, kind: Any, recording: Recording) -> Callable[..., Any]:
    """A function that records its calls."""

    def call(*args: Any, **kwargs: Any) -> Any:
        record = recording.begin(name, kind, (args, kwargs))
        returned = original(*args, **kwargs)
        recording.end(record, returned)
        return returned

    return call


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
