"""PaddlePaddle: eager, and as a static graph. Images are N,C,H,W, as in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework, Source
from xverify.framework.capture import Recorder
from xverify.framework.own_step import Step
from xverify.framework.training import BackwardPass, Batch, Training
from xverify.frameworks.paddle.optimizers import Equivalent, paddle_optimizer, state_keys, torch_axes
from xverify.weights import paddle as weights
from xverify.workload.losses import Loss
from xverify.workload.optimizers import Optimizer


def eager(framework: Framework, model: Any, example: tuple[Any, ...]) -> Any:
    """Call the layer directly."""
    return model


def static(framework: Adapter, model: Any, example: tuple[Any, ...]) -> Any:
    """Convert the code of the layer into one static graph (full_graph=True: nothing of it stays in Python)."""
    return framework.paddle.jit.to_static(model.forward, full_graph=True)


class Adapter(Framework):
    name = "paddle"
    needs = {"paddlepaddle": "paddle"}
    modes = {"eager": eager, "static": static}
    implicit_mode = "eager"
    trains = True
    takes_recipe = True
    blocking = True

    def __init__(self, threads: int, device: str) -> None:
        import paddle

        paddle.set_device("cpu")
        self.paddle, self.threads = paddle, threads

    @classmethod
    def variables(cls, threads: int, device: str) -> dict[str, str]:
        # The first is for OpenMP, and the second for the matrix library, which Paddle gives one thread otherwise.
        return {"OMP_NUM_THREADS": str(threads), "FLAGS_paddle_num_threads": str(threads)}

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        with self._default_dtype("float64" if float64 else "float32"):
            model = self.define(source, options)
        model.eval()
        return model

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        weights.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, Array]:
        return {name: array.astype(np.float32, copy=False) for name, array in weights.from_model(model).items()}

    def precisions(self, model: Any) -> dict[str, str]:
        return {each.name: _dtype(each.parts[0]) for each in weights.named_weights(model)}

    def to_native(self, array: Array, layout: str | None) -> Any:
        return self.paddle.to_tensor(np.array(array), dtype=array.dtype.name)

    def to_numpy(self, tensor: Any, layout: str | None) -> Array:
        array: Array = tensor.numpy()
        return array

    def wait(self, outputs: Any) -> None:
        """Nothing to do: on the CPU a call returns computed outputs."""

    def layers(self, model: Any) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = weights.layers(model)
        return found

    def environment(self) -> dict[str, object]:
        flags = self.paddle.get_flags(["FLAGS_paddle_num_threads"])
        return {
            "paddle": self.paddle.__version__,
            "threads": self.threads,
            "matrix_threads": flags["FLAGS_paddle_num_threads"],
        }

    def inference(self) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self.paddle.no_grad()
        return context

    @contextmanager
    def float64_arithmetic(self) -> Iterator[None]:
        with self.paddle.no_grad(), self._default_dtype("float64"):
            yield

    @contextmanager
    def _default_dtype(self, dtype: str) -> Iterator[None]:
        """Make this the dtype of parameters, and of tensors that are made without a dtype."""
        previous = self.paddle.get_default_dtype()
        self.paddle.set_default_dtype(dtype)
        try:
            yield
        finally:
            self.paddle.set_default_dtype(previous)

    def graph_count(self, call: Callable[..., Any]) -> int | None:
        count = getattr(call, "get_traced_count", None)  # a static function has this method
        return None if count is None else int(count())

    def calibrate(self, model: Any, inputs: tuple[Any, ...]) -> None:
        norms = _norms(model)
        momenta = [norm._momentum for norm in norms]
        for norm in norms:
            norm._momentum = 0.0  # running statistics are then those of the last call
            norm.train()  # only batch norms; dropout stays off
        with self.inference():
            model(*inputs)
        for norm, momentum in zip(norms, momenta):
            norm._momentum = momentum
        model.eval()

    def capture(self, model: Any, inputs: tuple[Any, ...], names: Mapping[str, str], recorder: Recorder) -> Any:
        _undo_conversion(model)
        return super().capture(model, inputs, names, recorder)

    # -- training ------------------------------------------------------------------------------------------------------

    def training(self, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool) -> Training:
        if optimizer.recipe:
            from xverify.frameworks.paddle.recipe import RecipeLearner

            return RecipeLearner(self, model, mode, batch, optimizer, match)
        return Learner(self, model, mode, batch, optimizer, match)

    def own_step(self, step: Step, mode: str) -> Step:
        if mode != "eager":
            raise Unsupported("a train_step of paddle.py runs as it is written: name paddle:eager")
        return step

    def train(self, model: Any) -> None:
        model.train()
        for part in model.parameters():
            part.clear_gradient(False)  # no gradient of an earlier state is left

    def is_optimizer(self, value: Any) -> bool:
        return isinstance(value, self.paddle.optimizer.Optimizer)

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        from xverify.frameworks.paddle.own_step import watched_updates

        return watched_updates(model)

    def disable_dropout(self, model: Any) -> list[str]:
        changed = []
        for name, layer in model.named_sublayers():
            attribute = "p" if "Dropout" in type(layer).__name__ else "dropout"  # of attention and of recurrent layers
            value = getattr(layer, attribute, None)
            if isinstance(value, (int, float)) and value:
                setattr(layer, attribute, 0.0)
                changed.append(name)
        return changed

    def cross_entropy(self, logits: Any, target: Any) -> Any:
        """The mean cross-entropy over all rows. logits: (..., classes); target: (...), class numbers."""
        return self.paddle.nn.functional.cross_entropy(logits, target)

    def loss_value(self, loss: Loss, x: Any, t: Any, axis: int, lengths: Any) -> Any:
        from xverify.frameworks.paddle.losses import paddle_loss

        return paddle_loss(loss, x, t, axis, lengths)

    def alias(self, tensor: Any) -> Any:
        if not tensor.stop_gradient:
            return tensor.clone()
        node = tensor.detach()
        node.stop_gradient = False
        return node

    def backward(self, model: Any, batch: Batch, tensors: Callable[[], Sequence[Any]]) -> BackwardPass:
        _undo_conversion(model)
        trained = trainable_weights(model)
        outputs = model(*batch[:-1])
        loss = self.loss(outputs, batch[-1])
        nodes = list(tensors())
        parts = [part for weight in trained for part in weight.parts]
        found = self.paddle.grad([loss], [*nodes, *parts], allow_unused=True)
        gradients = dict(zip(map(id, parts), found[len(nodes) :]))
        by_name = {each.name: gathered(each, [gradients[id(part)] for part in each.parts]) for each in trained}
        return BackwardPass(outputs, float(loss), found[: len(nodes)], by_name)


def trainable_weights(model: Any) -> list[weights.NamedWeight]:
    """Every weight that is trained. A tied one occurs once."""
    return [each for each in weights.named_weights(model) if not any(part.stop_gradient for part in each.parts)]


def _dtype(tensor: Any) -> str:
    """The dtype of a tensor, such as "float32"."""
    return str(tensor.dtype).rpartition(".")[2]


def gathered(weight: weights.NamedWeight, tensors: Sequence[Any]) -> Array:
    """The gradient or state of a weight in canonical layout. tensors: of its parts; None stands for zeros."""
    arrays = [np.zeros(part.shape, np.float32) if t is None else t.numpy() for part, t in zip(weight.parts, tensors)]
    array: Array = weights.to_canonical(weight, arrays)
    return array


def _norms(model: Any) -> list[Any]:
    """The batch norms that keep running statistics."""
    layers = model.sublayers(include_self=True)
    return [layer for layer in layers if hasattr(layer, "_variance") and not layer._use_global_stats]


def _undo_conversion(model: Any) -> None:
    """Give every sublayer the code that its class has. A conversion to a static graph leaves converted code in its place."""
    for layer in model.sublayers(include_self=True):
        if "forward" in layer._original_funcs:
            vars(layer).pop("forward", None)


class Learner(Training):
    """Training with paddle.optimizer, or with an exact equivalent of torch.optim. The loss and the update are eager."""

    def __init__(
        self, framework: Adapter, model: Any, mode: str, batch: Batch, optimizer: Optimizer, match: bool
    ) -> None:
        self.framework, self.paddle, self.model = framework, framework.paddle, model
        model.train()
        self.weights = trainable_weights(model)
        self.names = [each.name for each in self.weights]
        self.parts = [part for each in self.weights for part in each.parts]
        self.cross_entropy = framework.paddle.nn.functional.cross_entropy
        self.norms = _MatchedNorms(framework, model, batch) if match else None
        self.forward = framework.modes[mode](framework, model, batch[:-1])
        self.optimizer, self.optim = self._make_optimizer(optimizer, match)
        if not match:
            self._make_state()
        self.steps = 0

    def _make_optimizer(self, o: Optimizer, match: bool) -> tuple[Optimizer, Any]:
        """The settings with the formula variants, and the optimizer."""
        if match:
            return o.plain, Equivalent(self.paddle, o, self.parts, axes=torch_axes(o, self.weights))
        return paddle_optimizer(self.paddle, o, self.parts)

    def _make_state(self) -> None:
        """Make the optimizer create its state, which it does in its first step."""
        for part in self.parts:
            part.grad = self.paddle.zeros_like(part)
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)

    def _loss(self, batch: Batch) -> Any:
        """The loss of a batch, with its graph of gradients."""
        before = self.norms.variances() if self.norms else []
        outputs, objective = self.forward(*batch[:-1]), self.framework.objective
        loss = objective(outputs, batch[-1]) if objective else self.cross_entropy(outputs, batch[-1])
        if self.norms:
            self.norms.correct(before)
        return loss

    def step(self, *batch: Any) -> Any:
        loss = self._loss(batch)
        loss.backward()
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)
        self.steps += 1
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self._loss(batch)
        loss.backward()
        found = {each.name: gathered(each, [part.grad for part in each.parts]) for each in self.weights}
        self.optim.clear_grad(set_to_zero=False)
        return float(loss), found

    def apply(self, gradients: Mapping[str, Array]) -> None:
        for each in self.weights:
            for part, array in zip(each.parts, weights.from_canonical(each, gradients[each.name])):
                part.grad = self.framework.to_native(array, None)
        self.optim.step()
        self.optim.clear_grad(set_to_zero=False)
        self.steps += 1

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        keys = state_keys(self.optimizer)
        state = {
            each.name: [gathered(each, [self.optim._get_accumulator(key, part) for part in each.parts]) for key in keys]
            for each in self.weights
        }
        return self.steps, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.steps = steps
        for each in self.weights:
            for key, array in zip(state_keys(self.optimizer), state[each.name]):
                for part, own in zip(each.parts, weights.from_canonical(each, array)):
                    self.optim._get_accumulator(key, part).set_value(own)
        if isinstance(self.optim, Equivalent):
            self.optim.steps = steps
        elif self.optimizer.name in ("adam", "adamw"):
            self._set_powers(steps)

    def _set_powers(self, steps: int) -> None:
        """Set what Adam keeps beside the state: the powers of its betas for the next step."""
        for key, beta in (("beta1_pow_acc", self.optimizer.beta1), ("beta2_pow_acc", self.optimizer.beta2)):
            power = np.array([beta ** (steps + 1)], np.float32)
            for part in self.parts:
                self.optim._get_accumulator(key, part).set_value(power)


class _MatchedNorms:
    """Makes the running variances of batch norms what torch's are: Paddle's lack the factor n/(n - 1)."""

    def __init__(self, framework: Adapter, model: Any, batch: Batch) -> None:
        self.norms = _norms(model)
        self.terms: dict[int, int] = {}  # id of a norm -> n, the number of values in each of its means
        hooks = [norm.register_forward_pre_hook(self._count) for norm in self.norms]
        with framework.inference():
            model(*batch[:-1])
        for hook in hooks:
            hook.remove()

    def _count(self, norm: Any, inputs: tuple[Any, ...]) -> None:
        if id(norm) in self.terms:
            raise Unsupported("a batch norm that is called twice in one pass cannot be matched with torch's")
        self.terms[id(norm)] = int(np.prod(inputs[0].shape)) // norm._variance.shape[0]

    def variances(self) -> list[Any]:
        """Copies of the running variances."""
        return [norm._variance.clone() for norm in self.norms]

    def correct(self, before: Sequence[Any]) -> None:
        """Correct the running variances after a forward pass. before: the running variances before it.

        Paddle computes new = m·old + (1 - m)·biased, where m is the momentum. Torch's value is larger by (1 - m)·biased/(n - 1).
        """
        for norm, old in zip(self.norms, before):
            if id(norm) in self.terms:
                new = norm._variance
                new.set_value(new + (new - norm._momentum * old) / max(1, self.terms[id(norm)] - 1))
