"""Writes the lists of what a model file may use without trust: python suites/operators.py [NAME...]

A list is xverify/formats/NAME.txt, with the names that the installed framework has. The rules here decide which of them have no
effect outside of the model. A name that a list does not have needs trust, so a newer framework costs a warning and no safety.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from xverify.formats._torchscript_code import REACHING

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
FORMATS = Path(__file__).parents[1] / "xverify" / "formats"

# Stateless operators of TensorFlow that read files, call Python, other machines or functions that a text names, stop the process,
# print into files, or belong to data pipelines and to hardware that is not here.
_REACHING = re.compile(
    r"Dataset|Debug|^Copy|File|Restore|PyFunc|ImmutableConst|TPU|Xla|DTensor|Proto|Remap|Abort|Reader|Queue|Barrier|Remote|Symbolic"
    r"|Sdca|SparseCore|BatchFunction|^Batch$|Unbatch|Cudnn|Accumulator|BoostedTrees|^For$|MapDefun|Infeed|Prelinearize|^Fact$"
)
# Stateful operators of TensorFlow that keep state in memory, draw random numbers, write to the console, or control computation.
_HARMLESS = re.compile(
    r"(VarHandleOp|VarIsInitializedOp|(Assign|AssignAdd|AssignSub|Read)VariableOp|DisableCopyOnRead|DestroyResourceOp|VariableShape"
    r"|Variable(V2)?|TemporaryVariable|Resource(Gather(Nd)?|Scatter(Nd)?\w+|StridedSliceAssign|CountUpTo|(Sparse)?Apply\w+)"
    r"|If|While|Case|StatefulPartitionedCall|Assert|Print|Timestamp|CheckNumerics(V2)?|GuaranteeConst|Empty|DeepCopy|GraphDefVersion"
    r"|(Anonymous)?(Mutable)?(Dense)?HashTable(OfTensors)?(V2)?|LookupTable\w+V2|InitializeTableV2"
    r"|TensorArray\w*V[23]|TensorArray|TensorArrayGrad(WithShape)?|Stack(Push|Pop|Close)?V2|Stack|Multinomial|Skipgram"
    r"|Random(Standard|Uniform|Gamma|Poisson|Crop)\w*|RandomShuffle|\w*TruncatedNormal|Stateful(Uniform|StandardNormal|RandomBinomial)\w*"
    r"|StatelessRandomGetAlg|Rng(Skip|ReadAndSkip)|NonDeterministicInts|SampleDistortedBoundingBox(V2)?|\w+CandidateSampler)"
)


def tensorflow() -> Iterable[str]:
    """Operators of TensorFlow's public registry; ShardedFilename makes a name and opens nothing."""
    import tensorflow as tf
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session as session

    known = op_def_pb2.OpList.FromString(session.TF_GetBuffer(session.TF_GetAllOpList()))
    for each in known.op:
        harmless = _HARMLESS.fullmatch(each.name) if each.is_stateful else not _REACHING.search(each.name)
        if harmless and hasattr(tf.raw_ops, each.name):
            yield each.name
    yield "ShardedFilename"


_SPACES = {
    *("aten", "prim", "prims", "quantized", "_quantized", "quantization", "quantized_decomposed", "sparse"),
    *("mkldnn", "onednn", "mkldnn_prepacked", "static_runtime"),
}
_TORCH_MORE = (
    *("profiler::_record_function_enter", "profiler::_record_function_enter_new", "profiler::_record_function_exit"),
    *(
        f"torchvision::{name}"
        for name in ("nms", "roi_align", "roi_pool", "ps_roi_align", "ps_roi_pool", "deform_conv2d")
    ),
    *(
        f"prim::{name}"
        for name in ("Constant", "GetAttr", "SetAttr", "CallMethod", "CallFunction", "If", "Loop", "isinstance")
    ),
    *(
        f"prim::{name}"
        for name in ("TupleConstruct", "TupleUnpack", "TupleIndex", "TupleSlice", "ListConstruct", "ListUnpack")
    ),
    *(
        f"prim::{name}"
        for name in ("DictConstruct", "CreateObject", "fork", "Closure", "Enter", "Exit", "Uninitialized", "Return")
    ),
    *(f"prim::{name}" for name in ("Param", "awaitable", "unchecked_cast", "GradOf", "FunctionalGraph")),
    *(
        f"higher_order::{name}"
        for name in ("cond", "while_loop", "scan", "map_impl", "associative_scan", "flex_attention")
    ),
    *(
        f"higher_order::{name}"
        for name in ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "out_dtype")
    ),
)


def torch() -> Iterable[str]:
    """Operators of PyTorch, as "space::name". Those of these spaces have no argument that names a file, but for REACHING.

    The classes are those of quantised layers, whose state is restored by C++ code of PyTorch.
    """
    import torch
    import torch.ao.quantization.fx._decomposed

    names = {each.name for each in torch._C._jit_get_all_schemas()} | set(torch._C._dispatch_get_all_op_names())
    for space, name in (each.partition(".")[0].split("::") for each in names):
        calls = space == "prim" and ("Python" in name or name.startswith("rpc_"))
        reaches = space == "aten" and name in REACHING
        if space in _SPACES and not calls and not reaches:
            yield f"{space}::{name}"
    yield from _TORCH_MORE


# Objects of Keras that hold code, open other files or models, or belong to other frameworks; and what makes any one.
_KERAS_CODE = "Lambda TorchModuleWrapper TFSMLayer JaxLayer FlaxLayer Distiller TFOptimizer TorchOptimizer"
_KERAS_PARTS = (
    "layers initializers regularizers constraints quantizers dtype_policies losses metrics optimizers activations random "
    "models ops"
)


def keras() -> Iterable[str]:
    """Classes of Keras that a configuration may name, and functions such as activations; and what Keras writes for plain values."""
    import importlib
    import inspect
    import pkgutil

    os.environ["KERAS_BACKEND"] = "tensorflow"
    import keras
    from keras.src.api_export import REGISTERED_NAMES_TO_OBJS
    from keras.src.saving.keras_saveable import KerasSaveable

    for each in pkgutil.walk_packages(keras.src.__path__, "keras.src."):
        if each.name.split(".")[2] in _KERAS_PARTS.split(" ") and "test" not in each.name:
            importlib.import_module(each.name)
    waiting, found = [KerasSaveable], set()
    while waiting:
        for each in waiting.pop().__subclasses__():
            waiting.append(each)
            if each.__module__.startswith("keras.src.") and each.__module__.split(".")[2] in _KERAS_PARTS.split(" "):
                found.add(each.__name__)
    for path, each in REGISTERED_NAMES_TO_OBJS.items():
        inside = getattr(each, "__module__", "").split(".")[2:3] if inspect.isclass(each) else path.split(".")[1:2]
        if (
            inside
            and inside[0] in _KERAS_PARTS.split(" ")
            and (inspect.isclass(each) or inside[0] not in ("layers", "models"))
        ):
            found.add(path.rpartition(".")[2])
    yield from found - {*_KERAS_CODE.split(" "), "serialize", "deserialize", "get"}
    yield from (
        "function",
        "Policy",
        *(f"__{kind}__" for kind in ("keras_tensor", "tensor", "numpy", "bytes", "ellipsis", "slice", "typespec")),
    )


LISTS: dict[str, Callable[[], Iterable[str]]] = {
    "tensorflow-operators": tensorflow,
    "torch-operators": torch,
    "keras-names": keras,
}


def text(names: Iterable[str]) -> str:
    """The content of a list."""
    return " ".join(sorted(set(names))) + "\n"


if __name__ == "__main__":
    for name in sys.argv[1:] or LISTS:
        (FORMATS / f"{name}.txt").write_text(text(LISTS[name]()))
