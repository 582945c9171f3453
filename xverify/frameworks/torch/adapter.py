"""PyTorch, which defines the canonical names, layouts and semantics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from xverify.errors import Failed, Unsupported
from xverify.framework.adapter import Activations, Array, Framework, Names, OpenAxes, Source
from xverify.framework.capture import Recorder, TrainingRecorder
from xverify.framework.decoding import Decoder
from xverify.framework.generators import Noted
from xverify.framework.outline import Outlined
from xverify.framework.own_mistake import OwnMistake
from xverify.framework.own_state import Slot, StoredWeight
from xverify.framework.own_step import Step
from xverify.framework.ranks import MEETING, DropoutsDrawn, WeightsHeld
from xverify.framework.training import BackwardPass, Batch, Training
from xverify.frameworks.torch.base import TrainsOnTorch, channels_last
from xverify.frameworks.torch.mixed import MixedLearner
from xverify.frameworks.torch.torchvision import declare_torchvision_ops
from xverify.frameworks.torch.training import Learner, by_name
from xverify.weights import torch as weights
from xverify.workload.optimizers import Optimizer
from xverify.workload.ranks import OF_FILES, PLANS
from xverify.workload.spec import ModelFolder


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the module directly."""
    return framework.wrapped(model)


def trace(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Record the operations of one call in a TorchScript graph."""
    from xverify.frameworks.torch.outputs import traced

    return traced(model, example)


def script(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the source code of the module to TorchScript."""
    return framework.torch.jit.script(model)


def compiled(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Compile the module with torch.compile."""
    return framework.torch.compile(model)


class Adapter(TrainsOnTorch, Framework):
    name = "torch"
    weights_module = weights
    copies = 1.2
    overhead = 150
    forks = True
    preloads: ClassVar[tuple[str, ...]] = (  # what a reference uses
        "torch._dynamo",
        "torch.fx.experimental.symbolic_shapes",
        "xverify.explain.replay",
        "xverify.frameworks.torch.activations",
        "xverify.frameworks.torch.export",
    )
    needs = {"torch": "torch"}
    libraries = ("torch", "torchvision", "torchaudio", "transformers", "diffusers", "timm")
    modes = {"eager": eager, "trace": trace, "script": script, "compile": compiled, "channels-last": channels_last}
    default_modes: ClassVar[tuple[str, ...]] = ("eager",)
    trains = True
    decodes = True
    takes_recipe = True
    streams_weights = True
    mixed: ClassVar[tuple[str, ...]] = ("bfloat16", "float16")
    plans = tuple(PLANS)
    rank_modes = ("eager",)

    parallel: Any = None  # what ``parallelize`` made
    seeding: Any = None  # see ranks.Seeding
    given: Any = None  # the weights before ``parallelize`` of a model file, until the ranks are compared

    def __init__(self, threads: int, device: str) -> None:
        import torch

        self.use(torch, threads, device)
        declare_torchvision_ops(torch)

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        if mode == "trace" and folder.spec.control_flow:
            return f"{folder.spec.control_flow}, and a trace holds one path only: use torch:script"
        if mode == "channels-last" and not any(len(tensor.shape) == 4 for tensor in folder.spec.inputs.values()):
            return "the model takes no images: channels_last is a memory order of N,C,H,W tensors"
        return super().refuses(folder, mode)

    def is_model(self, made: Any) -> bool:
        return isinstance(made, self.torch.nn.Module)

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        from xverify.frameworks.torch.on_disk import parameters_on_disk

        # Tables that the constructor computes, and that are no weights, must be exact in a float64 model.
        with parameters_on_disk(self.setup.disk) as move:
            with self.float64_arithmetic() if float64 else nullcontext():
                model = self.define(source, options).eval().to(self.device)
            if float64:
                model = model.double()
            for parameter in model.parameters():
                move(parameter)  # the constructor chose the dtype of some, and others are new ones on the device
        return model

    def weights_of(self, model: Any) -> Mapping[str, Array]:
        return weights.OfModel(model)

    def precisions(self, model: Any) -> dict[str, str]:
        return {name: str(tensor.dtype).removeprefix("torch.") for name, tensor in model.state_dict().items()}

    def activations(self, model: Any, inputs: tuple[Any, ...], training: bool) -> Activations:
        from xverify.frameworks.torch.activations import activations

        return activations(model, inputs, training)

    def outline(self, model: Any, inputs: tuple[Any, ...]) -> Outlined:
        from xverify.frameworks.torch.outline import outline

        return outline(model, inputs)

    def random_operation(self, model: Any, inputs: tuple[Any, ...], folder: Path) -> str:
        from xverify.frameworks.torch.random import random_operation

        return random_operation(model, inputs, folder)

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.torch.from_numpy(np.array(array)).to(self.device)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        return self.array(tensor)

    def layers(self, model: Any) -> dict[str, list[Any]]:
        from xverify.float64.parametrized import inner_modules

        inner = inner_modules(model)
        return {name: [module] for name, module in model.named_modules() if name and module not in inner}

    def environment(self) -> dict[str, object]:
        return {"torch": self.torch.__version__, "threads": self.torch.get_num_threads(), **self.device_settings()}

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.torch.inference_mode()
        return context

    @contextmanager
    def float64_arithmetic(self) -> Iterator[None]:
        from xverify.float64.arithmetic import float64_arithmetic

        with self.torch.no_grad(), float64_arithmetic():
            yield

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        if not hasattr(call, "_orig_mod"):  # torch.compile keeps the original module in this attribute
            return None
        from torch._dynamo.utils import counters

        graphs: int = counters["stats"]["unique_graphs"]
        return graphs

    def computed_weights(self, model: Any) -> dict[str, tuple[str, ...]]:
        from xverify.float64.parametrized import computed

        return {each.name: each.parts for each in computed(model)}

    def own_buffers(self, model: Any) -> list[str]:
        return [
            f"{path}.{name}" if path else name
            for path, module in model.named_modules()
            if not type(module).__module__.startswith("torch.")
            for name in module._buffers
        ]

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        from xverify.float64.parametrized import ITERATIONS, iterate

        iterate(model, ITERATIONS)
        norms = [module for module in model.modules() if isinstance(module, self.torch.nn.modules.batchnorm._BatchNorm)]
        if not norms:
            return
        momenta = [norm.momentum for norm in norms]
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # running statistics are then the plain average over the calls
            norm.train()  # only batch norms; dropout stays off
        with self.torch.no_grad():
            model(*inputs)
        for norm, momentum in zip(norms, momenta):
            norm.momentum = momentum
        model.eval()

    def export_onnx(
        self, model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool, axes: OpenAxes
    ) -> str:
        from xverify.frameworks.torch.export import export

        return export(model, inputs, names, path, with_weights, axes)

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        from xverify.float64.linear import called_by_weights, owners_of

        with called_by_weights(owners_of(model)):
            return super().capture(model, inputs, names, recorder)

    def capture_training(
        self, model: Any, batch: Batch, names: Mapping[str, str], recorder: TrainingRecorder
    ) -> tuple[Any, float, Mapping[str, Array]]:
        from xverify.float64.linear import called_by_weights, owners_of

        with called_by_weights(owners_of(model)):
            return super().capture_training(model, batch, names, recorder)

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        kind = MixedLearner if optimizer.recipe.is_mixed else Learner
        return kind(self, model, mode, batch, optimizer)

    def join(
        self, rank: int, count: int, plan: str, meeting: str, seconds: float, shares: Sequence[float] = ()
    ) -> None:
        from xverify.frameworks.torch.ranks import join

        join(rank, count, meeting, seconds)

    def meet(self) -> None:
        from torch.distributed import barrier

        try:
            barrier()
        except RuntimeError as error:
            raise Failed(f"{MEETING}: {error}") from error

    def parallelize(self, model: Any, plan: str, source: Source) -> list[str]:
        from xverify.float64.norms_in_parts import norms_apart
        from xverify.frameworks.torch.ranks import loaded, parallelize, seeds

        self.given = {name: each.clone() for name, each in loaded(model).items()} if plan in OF_FILES else {}
        with seeds(plan) as self.seeding:
            self.parallel = parallelize(model, plan, source)
        return norms_apart(model) if plan != "tp" else []

    def weights_held(self, model: Any) -> WeightsHeld:
        from xverify.frameworks.torch.ranks import weights_held

        given, self.given = self.given, None
        return weights_held(model, given) if given else WeightsHeld()

    def dropout_rates(self, model: Any) -> Mapping[str, float]:
        return {name: layer.p for name, layer in self.dropouts(model).items() if layer.p}

    def draw_dropouts(self, model: Any, inputs: tuple[Any, ...], rates: Mapping[str, float]) -> DropoutsDrawn:
        from xverify.frameworks.torch.ranks import draw_dropouts

        return draw_dropouts(model, self.wrapped(model), inputs, rates, self.seeding)

    def wrapped(self, model: Any) -> Any:
        return model if self.parallel is None else self.parallel

    def decoder(self, model: Any, inputs: Mapping[str, str | None], output: str) -> Decoder:
        from xverify.frameworks.torch.decoding import TorchDecoder

        return TorchDecoder(self, model, inputs, output)

    def export_decoder(self, model: Any, inputs: tuple[Any, ...], names: Names, path: Path, with_weights: bool) -> str:
        from xverify.frameworks.torch.decoder_export import export_decoder

        return export_decoder(self, model, inputs, names, path, with_weights)

    def own_step(self, step: Any, mode: str) -> Step:
        if mode != "eager":
            raise Unsupported("a train_step of torch.py runs as it is written: name torch:eager")
        from xverify.frameworks.torch.functional_dropout import switch_off

        switch_off(step.model, own_step=True)
        return step

    def train(self, model: Any) -> None:
        model.train()
        model.zero_grad(set_to_none=True)  # no gradient of an earlier state is left

    def is_optimizer(self, value: Any) -> bool:
        return isinstance(value, self.torch.optim.Optimizer)

    def is_module(self, value: Any) -> bool:
        return isinstance(value, self.torch.nn.Module)

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        from xverify.frameworks.torch.own_step import stored_weights

        return stored_weights(module)

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        return (model.parameters(),)

    def slots(self, value: Any) -> Iterable[Slot] | None:
        from xverify.frameworks.torch.own_step import slots

        return slots(value) if self.is_optimizer(value) else None

    def own_mistake(
        self, mistake: OwnMistake, model: Any, optimizers: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        from xverify.float64.own_changes import planted

        return planted(mistake, model, optimizers)

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.torch.own_step import watched_updates

        return watched_updates(model)

    def watched_draws(self, note: Noted) -> AbstractContextManager[None]:
        from xverify.frameworks.torch.own_step import watched_draws

        return watched_draws(note)

    def disable_dropout(self, model: Any) -> list[str]:
        from xverify.frameworks.torch.functional_dropout import switch_off

        nn = self.torch.nn
        switch_off(model)
        changed = []
        for name, module in model.named_modules():
            if isinstance(module, nn.modules.dropout._DropoutNd) and module.p:
                module.p = 0.0
                changed.append(name)
            elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)) and module.dropout:
                module.dropout = 0.0
                changed.append(name)
        return changed

    def dropouts(self, model: Any) -> Mapping[str, Any]:
        kind = self.torch.nn.modules.dropout._DropoutNd
        return {name: module for name, module in model.named_modules() if isinstance(module, kind)}

    def functional_dropout(self) -> AbstractContextManager[list[str]]:
        from xverify.frameworks.torch.functional_dropout import watched

        return watched()

    def drop(self, layer: Any, x: Any) -> Any:
        from xverify.frameworks.torch.functional_dropout import switched_on

        mode = layer.training
        with self.torch.no_grad(), switched_on():
            y = layer.train()(x)
        layer.train(mode)
        return y

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        parameters = dict(model.named_parameters())
        with self.autocast():
            outputs = model(*batch[:-1])
            loss = self.loss(outputs, batch[-1])
        nodes = list(tensors())
        found = self.differentiated(loss, [*nodes, *parameters.values()])
        tensor_gradients, parameter_gradients = found[: len(nodes)], found[len(nodes) :]
        return BackwardPass(outputs, float(loss.detach()), tensor_gradients, by_name(parameters, parameter_gradients))
