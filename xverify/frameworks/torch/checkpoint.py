"""Checkpoints of torch: ``torch.save`` of ``{"model": model.state_dict(), "optimizer": optimizer.state_dict()}``.

An optimizer's state_dict has no names: parameters are numbered in the order in which the optimizer was given them, which for one
group is that of ``model.parameters()``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from xverify.errors import WeightsError
from xverify.framework.checkpoint import (
    ADAMS,
    MODEL,
    OPTIMIZER,
    STEPS,
    Argument,
    Checkpoint,
    Constructor,
    Opened,
    Settings,
    entry,
    one_count,
)
from xverify.weights import torch as weights
from xverify.workload.adafactor import EPS as ADAFACTOR_EPS
from xverify.workload.recipe import Group

LION = "exp_avg"  # the name of its momentum in the packages that have it; see lion.py

_RATE = {"lr": Argument("lr")}
_DECAY = {"weight_decay": Argument("weight_decay")}
_BETAS = {"beta1": Argument("betas"), "beta2": Argument("betas")}
_EPS = {"eps": Argument("eps")}
_ADAM = {**_RATE, **_BETAS, **_EPS, **_DECAY, "amsgrad": Argument("amsgrad")}
_RMSPROP = {
    **_RATE,
    "alpha": Argument("alpha"),
    **_EPS,
    **_DECAY,
    "momentum": Argument("momentum"),
    "centered": Argument("centered"),
}
_ADAFACTOR = {
    **_RATE,
    "beta2_decay": Argument("beta2_decay"),
    "eps": Argument("eps"),
    "eps2": Argument("eps"),
    "threshold": Argument("d"),
    **_DECAY,
}
# Options of a parameter group that change the formula -> the only value with which xverify computes it.
PLAIN = {"dampening": 0, "maximize": False, "lr_decay": 0}


class TorchCheckpoint(Checkpoint):
    """A checkpoint of torch, with the parameters of its optimizer by name."""

    suffixes = (".pt", ".pth", ".ckpt")
    constructors = {
        "sgd": Constructor(
            "torch.optim.SGD",
            {**_RATE, "momentum": Argument("momentum"), **_DECAY, "nesterov": Argument("nesterov")},
        ),
        "adam": Constructor("torch.optim.Adam", _ADAM),
        "adamw": Constructor("torch.optim.AdamW", _ADAM),
        "rmsprop": Constructor("torch.optim.RMSprop", _RMSPROP),
        "adagrad": Constructor("torch.optim.Adagrad", {**_RATE, **_DECAY, **_EPS}),
        "lion": Constructor("Lion", {**_RATE, **_BETAS, **_DECAY}),
        "adafactor": Constructor("torch.optim.Adafactor", _ADAFACTOR),
    }

    def __init__(self) -> None:
        self.model: Mapping[str, Any] | None = None
        self.groups: list[dict[str, Any]] = []
        self.state: dict[str, dict[str, Any]] = {}  # parameter -> the entries of its state
        self.owner: dict[str, int] = {}  # parameter -> the index of its group

    def made(self, name: str) -> Callable[..., Any]:
        raise NotImplementedError  # a file of torch holds every setting

    def weights(self) -> Mapping[str, Any] | None:
        return None if self.model is None else weights.OfFile(dict(self.model))

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, model: Any) -> Opened:
        weights.check_archive(path, None)
        stored = weights.load_stored(path)
        if not isinstance(stored, dict):
            raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a checkpoint")
        whole = "param_groups" in stored
        found, own = (stored, "") if whole else entry(stored, OPTIMIZER)
        found = found[0] if isinstance(found, list) and len(found) == 1 else found
        if not isinstance(found, dict) or not {"state", "param_groups"} <= found.keys():
            raise WeightsError(
                f"{path}: it holds no state_dict of one optimizer, which has the entries state and param_groups: it is expected "
                f"under one of the names {', '.join(OPTIMIZER)}, and the file has {', '.join(map(str, stored))}"
            )
        self.model, of_model = (None, "") if whole else entry(stored, MODEL)
        self._take(found, dict(model.named_parameters()))
        left = [] if whole else [str(name) for name in stored if name not in (own, of_model, *STEPS)]
        counts = {name: float(each["step"]) for name, each in self.state.items() if "step" in each}
        steps = one_count(path, counts)
        told = next((stored[name] for name in STEPS if not whole and isinstance(stored.get(name), int)), None)
        settings = self._settings()
        groups = tuple(self._group(name, settings) for name in self.owner if self._differs(name, settings))
        return Opened(settings, groups, told if steps is None else steps, self.model is not None, tuple(left), ADAMS)

    def _take(self, found: Mapping[str, Any], parameters: Mapping[str, Any]) -> None:
        """Give every entry of the state the name of its parameter. parameters: of the model, by name."""
        self.groups = list(found["param_groups"])
        numbered = [(number, index) for index, group in enumerate(self.groups) for number in group["params"]]
        names = self._names(found, numbered, parameters)
        self.owner = {name: index for (_, index), name in zip(numbered, names)}
        self.state = {name: dict(found["state"].get(number, {})) for (number, _), name in zip(numbered, names)}
        keeps = any(self.state.values())
        for name, entries in self.state.items():
            if keeps and not entries and parameters[name].requires_grad:
                raise WeightsError(
                    f"{self.path}: the parameter {name} has no optimizer state, and others have: it had no gradient in any step; "
                    "set requires_grad = False where the model does not train it"
                )
            for key, value in entries.items():
                self._check_shape(name, key, value, tuple(parameters[name].shape))

    def _check_shape(self, name: str, key: str, value: Any, shape: tuple[int, ...]) -> None:
        own = tuple(getattr(value, "shape", ()))
        wanted = {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, *shape[-1:])}.get(key, shape)
        if own and own != wanted:
            raise WeightsError(
                f"{self.path}: {key} of {name} has the shape {own}, and the model's parameter {shape}: it is the state of another "
                "model, or the optimizer was given its parameters in another order than model.parameters()"
            )

    def _names(
        self, found: Mapping[str, Any], numbered: Sequence[tuple[int, int]], parameters: Mapping[str, Any]
    ) -> list[str]:
        """The name of every numbered parameter. Several groups are told apart by names in the file, or by shapes."""
        named = [name for group in self.groups for name in group.get("param_names", ())]
        if len(named) == len(numbered) and set(named) <= parameters.keys():
            return named
        names = [name for name, each in parameters.items() if each.requires_grad]
        names = list(parameters) if len(numbered) == len(parameters) else names
        if len(numbered) != len(names):
            raise WeightsError(
                f"{self.path}: its optimizer has {len(numbered)} parameters, and the model {len(names)}: it is the state of "
                "another model"
            )
        if len(self.groups) == 1:
            return names
        # A parameter of a shape that only one group has belongs to this group; within a group the order is the model's.
        of_shape: dict[tuple[int, ...], set[int]] = {}
        for number, index in numbered:
            of_shape.setdefault(_shape(found["state"].get(number, {})), set()).add(index)
        mixed = next((shape for shape, groups in of_shape.items() if len(groups) > 1 or shape == ()), None)
        if mixed is not None:
            raise WeightsError(
                f"{self.path}: it has {len(self.groups)} parameter groups without names, and several have parameters of the shape "
                f" {mixed}: save the state of an optimizer that is given model.named_parameters()"
            )
        queues: dict[int, list[str]] = {index: [] for index in range(len(self.groups))}
        for name in names:
            for index in of_shape.get(tuple(parameters[name].shape), ()):
                queues[index].append(name)
        if any(len(queues[index]) != len(group["params"]) for index, group in enumerate(self.groups)):
            raise WeightsError(
                f"{self.path}: its parameters have other shapes than the model's: it is the state of another model"
            )
        return [queues[index].pop(0) for _, index in numbered]

    def _settings(self) -> Settings:
        """The settings of the first group."""
        group = self.groups[0]
        name = _kind(self.path, group, next((each for each in self.state.values() if each), {}))
        for option, plain in PLAIN.items():
            if group.get(option, plain) != plain and (option != "dampening" or group["momentum"]):
                raise WeightsError(
                    f"{self.path}: {option} is {group[option]}, and other frameworks have no such option: it cannot be converted"
                )
        found: Settings = {"name": name} if name else {}
        places: dict[str, int] = {}  # of an argument that is a tuple: the place of the next field
        for field, argument in self.constructors[name or "adam"].arguments.items():
            value = group.get(argument.own)
            if isinstance(value, (tuple, list)):
                place = places[argument.own] = places.get(argument.own, -1) + 1
                # Adafactor's first eps is None for that of the dtype of the weight.
                value = ADAFACTOR_EPS if value[place] is None else value[place]
            if value is not None:
                found[field] = value if isinstance(value, bool) else float(value)
        return found

    def _differs(self, name: str, settings: Settings) -> bool:
        group = self.groups[self.owner[name]]
        for key, value in self.groups[0].items():
            if key not in ("params", "param_names", "lr", "initial_lr", "weight_decay") and group.get(key) != value:
                raise WeightsError(
                    f"{self.path}: its parameter groups differ in {key} ({value} and {group.get(key)}): only groups that differ in "
                    "lr and weight_decay can be converted"
                )
        return any(float(group[key]) != settings[key] for key in ("lr", "weight_decay"))

    def _group(self, name: str, settings: Settings) -> Group:
        group = self.groups[self.owner[name]]
        return Group(name, float(group["lr"]), float(group["weight_decay"]))

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def load(self, model: Any, learner: Any, steps: int) -> None:
        learner.steps = steps
        optim, lion = learner.optim, learner.optimizer.name == "lion"
        names = {id(parameter): name for name, parameter in learner.parameters.items()}
        numbers = {name: number for number, name in enumerate(_ordered(optim, names))}
        state = {number: self.state.get(name, {}) for name, number in numbers.items()}
        if lion:
            state = {number: {"momentum": each.get(LION, each.get("momentum"))} for number, each in state.items()}
        groups = []
        for group in optim.param_groups:
            own = [numbers[names[id(each)]] for each in group["params"]]
            stored = self.groups[self.owner[names[id(group["params"][0])]]]
            groups.append({**group, **({} if lion else stored), "params": own})
        optim.load_state_dict({"state": {n: each for n, each in state.items() if each}, "param_groups": groups})

    def save(self, path: Path, model: Any, learner: Any) -> None:
        import torch

        stored = learner.optim.state_dict()
        if learner.optimizer.name == "lion":
            stored["state"] = {number: {LION: each["momentum"]} for number, each in stored["state"].items()}
            for group in stored["param_groups"]:
                group["betas"] = (learner.optimizer.beta1, learner.optimizer.beta2)
        names = {id(parameter): name for name, parameter in learner.parameters.items()}
        for group, live in zip(stored["param_groups"], learner.optim.param_groups):
            group["param_names"] = [names[id(each)] for each in live["params"]]
        weights_now = model.state_dict()
        for name, tensor in weights_now.items():
            if name.rpartition(".")[2] == "num_batches_tracked":
                tensor.fill_(learner.steps)  # which is no weight, and would be that of other steps
        torch.save({"model": weights_now, "optimizer": stored, "step": learner.steps}, path)


def _ordered(optim: Any, names: Mapping[int, str]) -> list[str]:
    """The names of the parameters of an optimizer, in its order."""
    return [names[id(each)] for group in optim.param_groups for each in group["params"]]


def _shape(entries: Mapping[str, Any]) -> tuple[int, ...]:
    """The shape of a parameter with this state; () where it does not tell."""
    tensors = [tuple(value.shape) for key, value in entries.items() if key != "step" and hasattr(value, "shape")]
    return max(tensors, default=(), key=len)


def _kind(path: Path, group: Mapping[str, Any], entries: Mapping[str, Any]) -> str:
    """The optimizer of a parameter group with this state; "" for one of adam and adamw, which older files do not tell apart."""
    keys, options = set(entries) - {"step"}, group.keys()
    if {"betas", "amsgrad"} <= options and keys <= {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}:
        if "decoupled_weight_decay" not in options:
            return ""
        return "adamw" if group["decoupled_weight_decay"] else "adam"
    if "dampening" in options:
        return "sgd"
    if {"alpha", "centered"} <= options and keys <= {"square_avg", "grad_avg", "momentum_buffer"}:
        return "rmsprop"
    if "initial_accumulator_value" in options and keys <= {"sum"}:
        return "adagrad"
    if "beta2_decay" in options:
        return "adafactor"
    if "betas" in options and "amsgrad" not in options and keys <= {LION}:
        return "lion"
    raise WeightsError(
        f"{path}: it is the state of an optimizer that is not converted: it has {', '.join(sorted(keys)) or 'no arrays'}, and the "
        f"settings {', '.join(sorted(set(options) - {'params'}))}; converted are {', '.join(TorchCheckpoint.constructors)}"
    )
