"""Jittor: lazy, compiled operator by operator with the C++ compiler that it finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Batch, Framework, Source, Training
from xverify.weights import jittor as weights
from xverify.workload.optimizers import Optimizer, update


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    return model


class Adapter(Framework):
    name = "jittor"
    needs = {"jittor": "jittor"}
    modes = {"eager": eager}
    implicit_mode = "eager"
    layer_method = "execute"
    default_modes = ("eager",)
    trains = True
    matched = False
    devices = ("cpu", "cuda")

    def __init__(self, threads: int, device: str) -> None:
        self.onednn = provide_onednn()
        if not self.onednn:
            os.environ["use_mkl"] = "0"
        try:
            import jittor
        except OSError as error:
            if device == "cpu":
                raise
            raise Unsupported(f"no CUDA device: {error}") from None  # an nvcc without the CUDA runtime

        self.jt = jittor
        if device == "cuda" and not jittor.has_cuda:
            raise Unsupported("no CUDA device: jittor.has_cuda is 0 (it needs nvcc on the path, or nvcc_path)")
        jittor.flags.use_cuda = int(device == "cuda")
        self.threads, self.device = threads, device

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        variables = {
            "OMP_NUM_THREADS": str(threads),
            # Otherwise the compiled core is kept apart for every git branch that happens to be checked out.
            "cache_name": os.environ.get("cache_name", "default"),
        }
        if device == "cpu":
            variables["nvcc_path"] = ""  # an nvcc without the CUDA runtime would stop the import
        return variables

    @classmethod
    def slow_start(cls) -> str:
        return "compiling its core and operators: 2 to 6 minutes the first time on a machine, then cached"

    @classmethod
    def wants_restart(cls, log: str) -> bool:
        # The others: its compilation of operators in parallel falls over now and then; what it has compiled is cached.
        return any(
            text in log for text in ("please rerun your command", "Segfault happen, main thread exit", "Segfault, exit")
        )

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        model = self.define(source, options)
        if float64:
            model.float64()
        model.eval()
        return model

    def load_weights(self, model: Any, arrays: dict[str, np.ndarray]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, np.ndarray]:
        return weights.from_model(model)

    def to_native(self, array: np.ndarray, layout: str | None) -> Any:
        # jt.array narrows 64-bit values silently.
        native = self.jt.array64(array) if array.dtype == np.float64 else self.jt.array(array)
        native.sync()
        return native

    def to_numpy(self, tensor: Any, layout: str | None) -> np.ndarray:
        array: np.ndarray = tensor.numpy()
        return array

    def wait(self, outputs: Any) -> None:
        """Make Jittor compute these outputs. Results that nobody asks for are never computed at all."""
        if isinstance(outputs, self.jt.Var):
            outputs.sync()
        elif not outputs:
            self.jt.sync_all(True)
        else:
            self.jt.sync(list(outputs.values() if isinstance(outputs, dict) else outputs))

    def layers(self, model: Any) -> dict[str, list[Any]]:
        return {name: [module] for name, module in model.named_modules() if name}

    def environment(self) -> dict[str, Any]:
        return {
            "jittor": self.jt.__version__,
            "threads": self.threads,
            "onednn": self.onednn or "absent: convolutions are slow",
            **({"use_cuda": self.jt.flags.use_cuda, "cudnn": bool(self.jt.cudnn)} if self.device == "cuda" else {}),
        }

    def release_memory(self) -> None:
        self.jt.gc()

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.jt.no_grad()
        return context

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        self.matched = match
        return Learner(self, model, batch, optimizer, match)

    def disable_dropout(self, model: Any) -> list[str]:
        held = []
        for name, module in model.named_modules():
            if "Dropout" in type(module).__name__ and getattr(module, "p", None):
                module.p = 0
                held.append(name)
            elif isinstance(getattr(module, "dropout", None), float) and module.dropout:
                module.dropout = 0.0
                held.append(name)
        return held

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean over all rows. logits: (..., classes). Jittor's own, or, to match, one whose gradient is torch's."""
        logits, target = logits.reshape((-1, logits.shape[-1])), target.reshape((-1,))
        if not self.matched:
            return self.jt.nn.cross_entropy_loss(logits, target)
        # Jittor's own differentiates through the maximum, which leaves the rounding of a sum at the largest logit.
        shifted = logits - logits.max([1], keepdims=True).stop_grad()
        labels = target.broadcast(shifted, [1])
        picked = (shifted * (labels.index(1) == labels)).sum(1)
        return (shifted.exp().sum(1).log() - picked).mean()

    def alias(self, tensor: Any) -> Any:
        node = tensor * 1.0
        if tensor.is_stop_grad():
            node.start_grad()  # of any other variable it would end the way back
        return node

    def backward(
        self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]
    ) -> tuple[Any, float, list[Any], dict[str, np.ndarray]]:
        learnt = learnt_by(model)
        logits = model(*batch[:-1])
        loss = self.cross_entropy(logits, batch[-1])
        nodes = list(tensors())
        found = self.jt.grad(loss, [*nodes, *learnt.values()])
        own = {name: gradient.numpy() for name, gradient in zip(learnt, found[len(nodes) :])}
        return logits, float(loss.numpy().item()), found[: len(nodes)], own


def learnt_by(model: Any) -> dict[str, Any]:
    """The parameters that learn, in training mode, by name; a tied one once."""
    once = {id(value): (name, value) for name, value in reversed(model.state_dict().items())}
    return {name: value for name, value in reversed(once.values()) if not value.is_stop_grad()}


class Learner(Training):
    """jittor.optim on the model's parameters."""

    # The lists of Jittor's parameter groups that hold what Optimizer.state_names names.
    STATE_NAMES = {"sgd": ("values",), "adam": ("m", "values"), "adamw": ("m", "values"), "rmsprop": ("values",)}

    def __init__(self, framework: Adapter, model: Any, batch: Batch, optimizer: Optimizer, match: bool) -> None:
        self.framework, self.jt, self.model = framework, framework.jt, model
        model.train()
        self.parameters = learnt_by(model)
        self.names = list(self.parameters)
        # Of one row a case, Jittor's own, and nothing around it: two more operations are 2% of a short step.
        flat = batch[-1].ndim == 1 and not match
        self.cross_entropy = framework.jt.nn.cross_entropy_loss if flat else framework.cross_entropy
        make = self._exact if match else self._own
        self.optimizer, self.optim = make(optimizer, list(self.parameters.values()))
        if match:
            _match_norms(framework.jt, model)

    def _own(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        """Jittor's own optimizer, and the settings with its variants."""
        optim = self.jt.optim
        if o.name == "sgd":
            return o.plain, optim.SGD(parameters, o.lr, o.momentum, o.weight_decay, nesterov=o.nesterov)
        if o.name == "rmsprop":
            if o.weight_decay:
                raise Unsupported("jittor.optim.RMSprop has no weight decay; --match-optimizer has")
            return o.plain, optim.RMSprop(parameters, o.lr, o.eps, o.alpha)
        kind = optim.Adam if o.name == "adam" else optim.AdamW
        variants = ("eps-hat",) if o.name == "adam" else ()
        return replace(o, variants=variants), kind(parameters, o.lr, o.eps, (o.beta1, o.beta2), o.weight_decay)

    def _exact(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        """torch's mathematics in Jittor's operations."""
        jt, names = self.jt, self.STATE_NAMES[o.name][: len(o.state_names)]

        base: Any = jt.optim.Optimizer

        class Exact(base):
            def __init__(self) -> None:
                super().__init__(parameters, o.lr)
                (group,) = self.param_groups
                for slot in names:
                    group[slot] = [jt.zeros(p.shape, p.dtype).stop_grad() for p in parameters]

            def step(self, loss: Any = None, retain_graph: bool = False) -> None:
                self.pre_step(loss, retain_graph)
                (group,) = self.param_groups
                for p, g, *slots in zip(group["params"], group["grads"], *(group[slot] for slot in names)):
                    new, values = update(o, p, g, slots, float(self.n_step), jt.sqrt)
                    for slot, value in zip(slots, values):
                        slot.update(value)
                    p.update(new)
                self.post_step()

        return o.plain, Exact()

    def step(self, *batch: Any) -> Any:
        loss = self.cross_entropy(self.model(*batch[:-1]), batch[-1])
        self.optim.step(loss)
        self.jt.sync_all()  # an update that nobody asks for is not computed
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, np.ndarray]]:
        loss = self.cross_entropy(self.model(*batch[:-1]), batch[-1])
        found = self.jt.grad(loss, list(self.parameters.values()))
        return float(loss.numpy().item()), {name: g.numpy() for name, g in zip(self.parameters, found)}

    def apply(self, gradients: Mapping[str, np.ndarray]) -> None:
        (group,) = self.optim.param_groups
        group["grads"] = [self.jt.array(gradients[name]).stop_grad() for name in self.parameters]
        self.optim.n_step += 1
        self.optim.step()
        self.jt.sync_all()

    def optimizer_state(self) -> tuple[int, dict[str, list[np.ndarray]]]:
        (group,) = self.optim.param_groups
        held = [group[slot] for slot in self.STATE_NAMES[self.optimizer.name][: len(self.optimizer.state_names)]]
        return self.optim.n_step, {
            name: [slot[index].numpy() for slot in held] for index, name in enumerate(self.parameters)
        }

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[np.ndarray]]) -> None:
        (group,) = self.optim.param_groups
        self.optim.n_step = steps
        for index, name in enumerate(self.parameters):
            for slot, array in zip(self.STATE_NAMES[self.optimizer.name], state[name]):
                group[slot][index].update(self.jt.array(array).stop_grad())


def _match_norms(jt: Any, model: Any) -> None:
    """Let batch norms compute as torch's: Jittor's variance is E[x²] - E[x]², and its running variance lacks n/(n - 1).

    Means are taken axis after axis: one float32 sum over all of them loses digits.
    """

    def mean_over(x: Any, axes: list[int]) -> Any:
        for axis in reversed(axes):
            x = jt.mean(x, dims=[axis])
        return x

    for norm in model.modules():
        if not isinstance(norm, jt.nn.BatchNorm):
            continue

        def execute(x: Any, norm: Any = norm) -> Any:
            axes = [0, *range(2, x.ndim)]
            terms = x.numel() // x.shape[1]
            mean = mean_over(x, axes)
            apart = x - mean.broadcast(x, axes)
            variance = mean_over(apart * apart, axes)
            scale = norm.weight / jt.sqrt(variance + norm.eps)
            for running, new in ((norm.running_mean, mean), (norm.running_var, variance * (terms / max(1, terms - 1)))):
                running.update(running + (new.reshape((-1,)) - running) * norm.momentum)
            return apart * scale.broadcast(x, axes) + norm.bias.broadcast(x, axes)

        norm.execute = execute


def jittor_home() -> Path:
    """Where Jittor keeps its cache. JITTOR_HOME is sticky: Jittor writes it down for every later process."""
    import jittor_utils

    return Path(jittor_utils.home())


def provide_onednn() -> str:
    """Put oneDNN where Jittor looks before it would download it; returns where it stands, '' when there is none.

    The wheels onednn-cpu-gomp and onednn-devel-cpu-gomp install into the environment's lib/ and include/.
    """
    place = jittor_home() / ".cache" / "jittor" / "mkl" / "dnnl_lnx_2.2.0_cpu_gomp"
    library, header = Path("lib/libmkldnn.so"), Path("include/dnnl.h")
    if (place / library).is_file() and (place / header).is_file():
        return str(place)
    prefix = Path(sys.prefix)
    if not ((prefix / library).is_file() and (prefix / header).is_file()):
        return ""
    place.mkdir(parents=True, exist_ok=True)
    for name in ("lib", "include"):
        link = place / name
        if link.is_symlink():
            link.unlink()  # left by an environment that is gone
        if not link.exists():
            link.symlink_to(prefix / name, target_is_directory=True)
    return str(place)
