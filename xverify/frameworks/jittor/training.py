"""Training with jittor.optim, or with an exact equivalent of torch.optim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from xverify.errors import Unsupported
from xverify.framework.adapter import Array, Framework
from xverify.framework.structures import Natives, only_output
from xverify.framework.training import Batch, Training
from xverify.weights import jittor as weights
from xverify.workload.optimizers import Optimizer


def trainable_parameters(model: Any) -> Natives:
    """Name -> variable of each trainable parameter of a model in training mode. A tied parameter occurs once."""
    return {name: value for name, value in weights.named_variables(model).items() if not value.is_stop_grad()}


class Learner(Training):
    """Training with jittor.optim, or with an exact equivalent of torch.optim."""

    # Optimizer -> lists of Jittor's parameter group that hold what Optimizer.state_names names, in the same order.
    ADAM = ("m", "values", "largest")
    STATE_NAMES = {"sgd": ("values",), "adam": ADAM, "adamw": ADAM, "rmsprop": ("values",), "lion": ("values",)}
    STATE_NAMES["adafactor"] = ("row", "column", "square")

    def __init__(self, framework: Framework, model: Any, batch: Batch, optimizer: Optimizer, match: bool) -> None:
        import jittor

        self.framework, self.jt, self.model = framework, jittor, model
        model.train()
        self.parameters = self._trained(trainable_parameters(model), optimizer)
        self.names = list(self.parameters)
        # With one label per item, Jittor's own function is called directly: two more operations would take 2% of a short step.
        direct = framework.setup.objective is None and batch[-1].ndim == 1 and not match
        self.cross_entropy = jittor.nn.cross_entropy_loss if direct else framework.cross_entropy
        make = self._equivalent_optimizer if match else self._jittor_optimizer
        self.optimizer, self.optim = make(optimizer, list(self.parameters.values()))
        if match:
            from xverify.frameworks.jittor.matched import match_norms

            match_norms(model)

    def _trained(self, parameters: Natives, optimizer: Optimizer) -> Natives:
        """The parameters that a step changes. parameters: those that can be trained."""
        return parameters

    def _jittor_optimizer(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        """The settings with Jittor's formula variants, and Jittor's own optimizer."""
        optim = self.jt.optim
        if o.recipe.amsgrad:
            raise Unsupported("jittor.optim has no AMSGrad; run with --match-optimizer")
        if o.name in ("lion", "adafactor"):
            raise Unsupported(f"jittor.optim has no {o.name.capitalize()}; run with --match-optimizer")
        if o.name == "sgd":
            return o.plain, optim.SGD(parameters, o.lr, o.momentum, o.weight_decay, nesterov=o.nesterov)
        if o.name == "rmsprop":
            if o.weight_decay:
                raise Unsupported("jittor.optim.RMSprop has no weight decay; run with --match-optimizer")
            return o.plain, optim.RMSprop(parameters, o.lr, o.eps, o.alpha)
        kind = optim.Adam if o.name == "adam" else optim.AdamW
        variants = ("eps-hat",) if o.name == "adam" else ()
        return replace(o, variants=variants), kind(parameters, o.lr, o.eps, (o.beta1, o.beta2), o.weight_decay)

    def _equivalent_optimizer(self, o: Optimizer, parameters: list[Any]) -> tuple[Optimizer, Any]:
        """The settings without variants, and torch's formulas in Jittor's operations."""
        from xverify.frameworks.jittor.matched import Equivalent

        return o.plain, Equivalent(parameters, o, o.keys(self.STATE_NAMES))

    def _loss(self, *batch: Any) -> Any:
        outputs, objective = self.model(*batch[:-1]), self.framework.setup.objective
        return objective(outputs, batch[-1]) if objective else self.cross_entropy(only_output(outputs), batch[-1])

    def step(self, *batch: Any) -> Any:
        loss = self._loss(*batch)
        self.optim.step(loss)
        self.jt.sync_all()  # without it Jittor would not compute the update
        return loss

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss = self._loss(*batch)
        found = self.jt.grad(loss, list(self.parameters.values()))
        return float(loss.numpy().item()), {name: g.numpy() for name, g in zip(self.parameters, found)}

    def apply(self, gradients: Mapping[str, Array]) -> None:
        (group,) = self.optim.param_groups
        group["grads"] = [self.jt.array(gradients[name]).stop_grad() for name in self.parameters]
        self.optim.n_step += 1
        self.optim.step()
        self.jt.sync_all()

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        state = {name: [v.numpy() for v in self._variables(index)] for index, name in enumerate(self.parameters)}
        return self.optim.n_step, state

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        self.optim.n_step = steps
        for index, name in enumerate(self.parameters):
            for variable, array in zip(self._variables(index), state[name]):
                variable.update(self.jt.array(array).stop_grad())

    def _variables(self, index: int) -> list[Any]:
        """The optimizer state of the parameter with this index, in the order of Optimizer.state_names."""
        (group,) = self.optim.param_groups
        return [group[key][index] for key in self.optimizer.keys(self.STATE_NAMES)]
