"""Files of Jittor: ``jt.save`` of ``{"model": model.state_dict(), "optimizer": optimizer.state_dict()}``, which is a pickle.

The arrays of an optimizer are in lists, in the order in which it was given its parameters, and have no names.
``model.parameters()`` has the running statistics, too: their places in these lists hold zeros, and no step changes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported, WeightsError
from xverify.framework.checkpoint import (
    ADAMS,
    MODEL,
    OPTIMIZER,
    Argument,
    Checkpoint,
    Constructor,
    Opened,
    Settings,
    entry,
    one_count,
)
from xverify.weights import jittor as weights
from xverify.weights import pickles
from xverify.weights.room import Room

DEFAULTS, GROUPS = "defaults", "param_groups"  # a state_dict has all settings, and the groups, in one entry

_RATE = {"lr": Argument("lr")}
_DECAY = {"weight_decay": Argument("weight_decay")}
_EPS = {"eps": Argument("eps")}
_ADAM = {**_RATE, **_EPS, "beta1": Argument("betas"), "beta2": Argument("betas"), **_DECAY}
# Settings that only some optimizers have -> the optimizer; "": adam or adamw. Adan has "max_grad_norm".
KNOWN = {
    frozenset({"momentum", "dampening", "nesterov"}): "sgd",
    frozenset({"alpha"}): "rmsprop",
    frozenset({"betas"}): "",
}
TELLING = {name for settings in KNOWN for name in settings} | {"max_grad_norm"}


class JittorCheckpoint(Checkpoint):
    """A file of Jittor, whose optimizer has one group of parameters.

    model: the state_dict of the model; None without one. defaults: the settings of the optimizer. group: the settings and the lists
    of its group.
    """

    suffixes = (".pkl",)
    constructors = {
        "sgd": Constructor(
            "jittor.optim.SGD", {**_RATE, "momentum": Argument("momentum"), **_DECAY, "nesterov": Argument("nesterov")}
        ),
        "adam": Constructor("jittor.optim.Adam", _ADAM),
        "adamw": Constructor("jittor.optim.AdamW", _ADAM),
        "rmsprop": Constructor("jittor.optim.RMSprop", {**_RATE, **_EPS, "alpha": Argument("alpha")}),
    }

    def __init__(self) -> None:
        self.model: Mapping[str, Any] | None = None
        self.defaults: dict[str, Any] = {}
        self.group: dict[str, Any] = {}

    def made(self, name: str) -> Callable[..., Any]:
        raise NotImplementedError  # a file of Jittor holds every setting

    def weights(self) -> Mapping[str, Any] | None:
        return self.model

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, model: Any) -> Opened:
        stored = pickles.load_stored(path)
        if not isinstance(stored, dict):
            raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict")
        whole = DEFAULTS in stored
        found, own = (stored, "") if whole else entry(stored, OPTIMIZER)
        if not isinstance(found, dict) or not isinstance(found.get(DEFAULTS), dict):
            raise WeightsError(
                f"{path}: it holds no state_dict of an optimizer of Jittor, which has the entry {DEFAULTS}: it is expected "
                f"under one of the names {', '.join(OPTIMIZER)}, and the file has {', '.join(map(str, stored))}"
            )
        self.defaults = found[DEFAULTS]
        groups = self.defaults.get(GROUPS, [])
        if len(groups) != 1:
            raise WeightsError(f"{path}: its optimizer has {len(groups)} parameter groups, and one can be converted")
        self.group = groups[0]
        held, of_model = (None, "") if whole else entry(stored, MODEL)
        self.model = pickles.arrays_of(held, path, Room(path)) if isinstance(held, dict) else None
        left = () if whole else tuple(str(name) for name in stored if name not in (own, of_model))
        steps = one_count(path, {"": float(self.defaults["n_step"])})
        return Opened(self._settings(), steps=steps, has_weights=self.model is not None, left=left, kinds=ADAMS)

    def _settings(self) -> Settings:
        """The settings of the file. Those of the group come before those of the optimizer."""
        name = KNOWN.get(frozenset(self.defaults.keys() & TELLING))
        if name is None:
            others = sorted(self.defaults.keys() - {GROUPS})
            raise WeightsError(
                f"{self.path}: it is the state of an optimizer that is not converted: its settings are {', '.join(others)}; "
                f"converted are {', '.join(self.constructors)}"
            )
        said = {**self.defaults, **self.group}
        if said.get("dampening") and said["momentum"]:
            raise WeightsError(
                f"{self.path}: dampening is {said['dampening']}, and other frameworks have no such option: it cannot be converted"
            )
        found: Settings = {"name": name} if name else {}
        for field, argument in self.constructors[name or "adam"].arguments.items():
            value = said[argument.own]
            if argument.own == "betas":
                value = value[("beta1", "beta2").index(field)]
            found[field] = value if isinstance(value, bool) else float(value)
        return found

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def load(self, model: Any, learner: Any, steps: int) -> None:
        _check_groups(learner)
        everything = list(weights.named_variables(model))
        group = {}
        for key in learner.optimizer.keys(learner.STATE_NAMES):
            of_name = self._by_name(key, everything, learner.names)
            for name in learner.names:
                self._check(key, name, of_name[name], tuple(learner.parameters[name].shape))
            group[key] = [of_name[name] for name in learner.names]
        own = {name: self.defaults[name] for name in learner.optim.defaults.keys() & self.defaults.keys() - {GROUPS}}
        learner.optim.load_state_dict({DEFAULTS: {**own, GROUPS: [group]}})
        learner.optim.n_step = learner.steps = steps

    def _by_name(self, key: str, everything: list[str], trained: list[str]) -> dict[str, Any]:
        """Parameter -> its entry in a list of the group. everything: the parameters and running statistics of the model."""
        entries = self.group.get(key)
        if not isinstance(entries, list):
            raise WeightsError(f"{self.path}: its optimizer has no list {key}: it is the state of another optimizer")
        names = everything if len(entries) == len(everything) else trained
        if len(entries) != len(names):
            raise WeightsError(
                f"{self.path}: its optimizer has {len(entries)} parameters, and the model {len(names)}: it is the state of "
                "another model"
            )
        present = self.group.get("params")  # the weights, in the same order; a file of this class has none
        for name, array in zip(names, present if isinstance(present, list) else ()):
            if self.model is not None and not np.array_equal(array, self.model.get(name, array)):
                raise WeightsError(
                    f"{self.path}: parameter {names.index(name)} of its optimizer is not {name}, which is at this place in "
                    "model.parameters(): the optimizer was given its parameters in another order, or the weights were saved at "
                    "another time"
                )
        return dict(zip(names, entries))

    def _check(self, key: str, name: str, array: Any, shape: tuple[int, ...]) -> None:
        """Raise WeightsError unless an entry of the state is an array of this shape."""
        own = np.shape(array) if isinstance(array, np.ndarray) else None
        if own != shape:
            raise WeightsError(
                f"{self.path}: {key} of {name} has the shape {own}, and the model's parameter {shape}: it is the state of "
                "another model, or the optimizer was given its parameters in another order than model.parameters()"
            )

    def save(self, path: Path, model: Any, learner: Any) -> None:
        import jittor

        _check_groups(learner)
        (own,) = learner.optim.param_groups
        group = {name: own[name] for name in ("lr", "weight_decay")}
        variables = weights.named_variables(model)
        for key in learner.optimizer.keys(learner.STATE_NAMES):
            of_name = {name: each.numpy() for name, each in zip(learner.names, own[key])}
            group[key] = [
                of_name.get(name, np.zeros(tuple(each.shape), np.float32)) for name, each in variables.items()
            ]
        state = {DEFAULTS: {**learner.optim.defaults, GROUPS: [group]}}
        jittor.save({MODEL[0]: weights.from_model(model), OPTIMIZER[0]: state}, str(path))


def _check_groups(learner: Any) -> None:
    """Raise Unsupported for several groups of parameters: where a user puts the running statistics is not known then."""
    if len(learner.optim.param_groups) > 1:
        raise Unsupported("the parameters have several learning rates or weight decays, and one group is converted")
