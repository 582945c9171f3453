"""Jittor, which computes lazily and compiles each operator with the C++ compiler of the system."""

# The framework's classes have no types, and a class here is derived from one of them.
# mypy: allow-subclassing-any

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Step
from xverify.framework.structures import leaves
from xverify.framework.training import BackwardPass, Batch, Training
from xverify.frameworks.jittor import shared
from xverify.frameworks.jittor.training import Learner, trainable_parameters
from xverify.weights import jittor as weights
from xverify.workload.operations import Operations
from xverify.workload.optimizers import Optimizer


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module directly."""
    return model


class Adapter(Framework):
    name = "jittor"
    own_variants: tuple[str, ...] = ("eps-hat",)
    weights_module = weights
    copies = 2.9
    overhead = 180
    forks = True
    needs = {"jittor": "jittor"}
    modes = {"eager": eager}
    implicit_mode = "eager"
    layer_method = "execute"
    scalars = False
    default_modes = ("eager",)
    trains = True
    decodes = True
    takes_recipe = True
    not_mixed = (
        "Jittor 1.3.11 was tried: its auto_mixed_precision_level never chooses bfloat16, and in float16 its matrix product of "
        "float32 values stops with an error on a CPU"
    )
    devices = ("cpu", "cuda")
    # Whether the loss is an exact equivalent of torch's: the argument ``match`` of ``training``.
    matched = False

    def __init__(self, threads: int, device: str) -> None:
        check_cache(Path.home() / ".cache" / "jittor")
        shared.use(compiled_cores())
        self.onednn = provide_onednn()
        if not self.onednn:
            os.environ["use_mkl"] = "0"
        try:
            import jittor
        except OSError as error:
            if device == "cpu":
                raise
            raise Unsupported(f"no CUDA device: {error}") from None  # there is nvcc, but no CUDA runtime
        self.jt = jittor
        if device == "cuda" and not jittor.has_cuda:
            raise Unsupported("no CUDA device: jittor.has_cuda is 0 (it needs nvcc on the path, or nvcc_path)")
        jittor.flags.use_cuda = int(device == "cuda")
        self.threads, self.device = threads, device

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {
            "OMP_NUM_THREADS": str(threads),
            # Without a name Jittor keeps one compiled core for each git branch that is checked out.
            "cache_name": os.environ.get("cache_name", "default"),
        }
        if device == "cpu":
            variables["nvcc_path"] = ""  # with nvcc, but no CUDA runtime, the import would fail
        return variables

    @classmethod
    def slow_start(cls) -> str:
        if shared.is_compiled(compiled_cores()):
            return ""
        return "compiling its core and operators: 2 to 6 minutes the first time on a machine, then cached"

    @classmethod
    def wants_restart(cls, log: str) -> bool:
        # Jittor asks for a restart after some steps of its installation. The compilation of operators in parallel crashes
        # occasionally; the operators that are already compiled are cached.
        restarts = ("please rerun your command", "Segfault happen, main thread exit", "Segfault, exit")
        return any(text in log for text in restarts)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        model = self.define(source, options)
        if float64:
            model.float64()
        model.eval()
        return model

    def precisions(self, model: Any) -> dict[str, str]:
        return {name: str(variable.dtype) for name, variable in weights.named_variables(model).items()}

    def to_native(self, array: Array, layout: str | None) -> Any:
        # jt.array converts 64-bit values to 32 bits without a warning.
        native = self.jt.array64(array) if array.dtype == np.float64 else self.jt.array(array)
        native.sync()
        return native

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        array: Array = tensor.numpy()
        return array

    def wait(self, outputs: Any) -> None:
        """Make Jittor compute these outputs. It never computes results that are not requested."""
        if isinstance(outputs, self.jt.Var):
            outputs.sync()
        elif not outputs:
            self.jt.sync_all(True)
        else:
            self.jt.sync([each for each in leaves(outputs) if isinstance(each, self.jt.Var)])  # a loss may be a number

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return {name: [module] for name, module in model.named_modules() if name}

    def taken(self, tensor: Any, places: Sequence[int], axis: int) -> Any:
        return tensor[(slice(None),) * axis + (self.jt.array(list(places)),)]

    def environment(self) -> dict[str, object]:
        settings = {
            "jittor": self.jt.__version__,
            "threads": self.threads,
            "onednn": self.onednn or "absent: convolutions are slow",
        }
        if self.device == "cuda":
            settings |= {"use_cuda": self.jt.flags.use_cuda, "cudnn": bool(self.jt.cudnn)}
        return settings

    def release_memory(self) -> None:
        self.jt.gc()

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.jt.no_grad()
        return context

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        self.matched = match
        return Learner(self, model, batch, optimizer, match)

    @property
    def steps_block(self) -> bool:
        return self.device == "cpu"  # each step computes all variables, as Jittor otherwise would not

    def own_step(self, step: Step, mode: str) -> Step:
        from xverify.frameworks.jittor.own_step import computed

        return computed(step)

    def train(self, model: Any) -> None:
        model.train()

    def is_optimizer(self, value: Any) -> bool:
        return isinstance(value, self.jt.optim.Optimizer)

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self.jt.Module)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        return [StoredWeight(name, ((name, each),)) for name, each in weights.named_variables(module).items()]

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        return (model.parameters(),)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        from xverify.frameworks.jittor.own_step import slots

        return slots(value) if self.is_optimizer(value) else None

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.jittor.own_step import watched_updates

        return watched_updates(model)

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for name, module in model.named_modules():
            if "Dropout" in type(module).__name__ and getattr(module, "p", None):
                module.p = 0
                changed.append(name)
            elif isinstance(getattr(module, "dropout", None), float) and module.dropout:
                module.dropout = 0.0
                changed.append(name)
        return changed

    def dropouts(self, model: Any) -> Mapping[str, Any]:
        return {name: module for name, module in model.named_modules() if name and "Dropout" in type(module).__name__}

    def drop(self, layer: Any, x: Any) -> Any:
        mode = layer.is_training()
        layer.train()
        with self.jt.no_grad():
            y = layer(x)
            y.sync()
        if not mode:
            layer.eval()
        return y

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers.

        It is Jittor's own function or, where torch is to be matched, one with torch's gradient.
        """
        logits, target = logits.reshape((-1, logits.shape[-1])), target.reshape((-1,))
        if not self.matched:
            return self.jt.nn.cross_entropy_loss(logits, target)
        # Jittor differentiates through the maximum, which leaves a rounding error at the largest logit.
        shifted = logits - logits.max([1], keepdims=True).stop_grad()
        labels = target.broadcast(shifted, [1])
        picked = (shifted * (labels.index(1) == labels)).sum(1)
        return (shifted.exp().sum(1).log() - picked).mean()

    @cached_property
    def operations(self) -> Operations:
        from xverify.frameworks.jittor.operations import JittorOperations

        return JittorOperations()

    def alias(self, tensor: Any) -> Any:
        node = tensor * 1.0
        if tensor.is_stop_grad():
            node.start_grad()  # on a variable with a gradient, start_grad would cut the graph
        return node

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        parameters = trainable_parameters(model)
        outputs = model(*batch[:-1])
        loss = self.loss(outputs, batch[-1])
        nodes = list(tensors())
        found = self.jt.grad(loss, [*nodes, *parameters.values()])
        parameter_gradients = {name: gradient.numpy() for name, gradient in zip(parameters, found[len(nodes) :])}
        return BackwardPass(outputs, float(loss.numpy().item()), found[: len(nodes)], parameter_gradients)


def check_cache(folder: Path) -> None:
    """Raise Failed unless Jittor, which asks for it wherever JITTOR_HOME is, can write into this folder."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise Failed(
            f"Jittor cannot write into its cache {folder}: {error.strerror}; name a home folder that can be written, such as "
            "HOME=/tmp/home"
        ) from None


def compiled_cores() -> Path:
    """The folder of Jittor's compiled cores, without importing Jittor."""
    return Path(os.path.expanduser(os.environ.get("JITTOR_HOME") or "~")) / ".cache" / "jittor"


def jittor_home() -> Path:
    """The folder of Jittor's cache. Jittor stores the value of JITTOR_HOME, and later processes use it without the variable."""
    import jittor_utils

    return Path(jittor_utils.home())


def provide_onednn() -> str:
    """Link an installed oneDNN into the folder where Jittor expects it, so that Jittor does not download it.

    The wheels onednn-cpu-gomp and onednn-devel-cpu-gomp install into lib/ and include/ of the environment. Returns the folder, or
    '' when oneDNN is not installed.
    """
    folder = jittor_home() / ".cache" / "jittor" / "mkl" / "dnnl_lnx_2.2.0_cpu_gomp"
    library, header = Path("lib/libmkldnn.so"), Path("include/dnnl.h")
    if (folder / library).is_file() and (folder / header).is_file():
        return str(folder)
    prefix = Path(sys.prefix)
    if not ((prefix / library).is_file() and (prefix / header).is_file()):
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("lib", "include"):
        link = folder / name
        if link.is_symlink():
            link.unlink()  # it may point to an environment that has been deleted
        if not link.exists():
            link.symlink_to(prefix / name, target_is_directory=True)
    return str(folder)
