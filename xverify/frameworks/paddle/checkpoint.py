"""Files of Paddle: ``paddle.save`` of the state_dict of an optimizer to a .pdopt file, and of that of a model to a .pdparams file.

Both are pickles. An array of an optimizer is called by the name that Paddle gives its parameter, which counts the layers of a
process, and by its own: "linear_0.w_0_moment1_0". A .pdparams file tells which parameter of the model has this name. No file holds
a setting of the optimizer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported, WeightsError
from xverify.framework.checkpoint import (
    ADAMS,
    MODEL,
    OPTIMIZER,
    STEPS,
    Argument,
    Checkpoint,
    Constructor,
    Fields,
    Opened,
    Settings,
    entry,
    one_count,
)
from xverify.weights import paddle as weights
from xverify.weights import pickles, readable
from xverify.weights.canonical import Array, Arrays
from xverify.weights.room import Room
from xverify.workload.optimizers import Optimizer

NAMES = "StructuredToParameterName@@"  # an entry that paddle.save adds: name in the model -> name of the parameter
SCHEDULE, MASTERS = "LR_Scheduler", "master_weights"
POWERS = {"beta1_pow_acc": ("beta1", 0.9), "beta2_pow_acc": ("beta2", 0.999)}  # -> the beta, and Paddle's own value
TINY = float(np.finfo(np.float32).tiny)  # a power that is smaller says nothing about the number of steps
ROUNDED = 2.0**-23  # of a power, for each step

_RATE = {"lr": Argument("learning_rate")}
_DECAY = {"weight_decay": Argument("weight_decay", lambda value: value or None, lambda value: value or 0.0)}
_EPS = {"eps": Argument("epsilon")}
_MOMENTUM = {"momentum": Argument("momentum")}
_ADAM = {
    **_RATE,
    "beta1": Argument("beta1"),
    "beta2": Argument("beta2"),
    **_EPS,
    **_DECAY,
    "amsgrad": Argument("amsgrad"),
}
# The arrays of a state -> its optimizer; "": adam or adamw. Lamb, which is not converted, has the arrays of adam, too.
KNOWN = {
    frozenset[str](): "sgd",
    frozenset({"velocity"}): "sgd",
    frozenset({"moment1", "moment2", *POWERS}): "",
    frozenset({"moment1", "moment2", "moment2_max", *POWERS}): "",
    frozenset({"mean_square", "mean_grad", "momentum"}): "rmsprop",
    frozenset({"moment"}): "adagrad",
}
KEY = re.compile(rf"(.+)_({'|'.join(sorted({each for kept in KNOWN for each in kept}))})_\d+")


class PaddleCheckpoint(Checkpoint):
    """A file of Paddle.

    model: name in the model -> array; None without weights. names: name in the model -> name of the parameter, as far as the file
    of the weights tells it. fields: name of an array -> name of a parameter in the file -> array.
    """

    suffixes = (".pdopt",)
    constructors = {
        "sgd": Constructor(
            "paddle.optimizer.Momentum", {**_RATE, **_MOMENTUM, "nesterov": Argument("use_nesterov"), **_DECAY}
        ),
        "adam": Constructor("paddle.optimizer.Adam", _ADAM),
        "adamw": Constructor("paddle.optimizer.AdamW", {**_ADAM, "weight_decay": Argument("weight_decay")}),
        "rmsprop": Constructor(
            "paddle.optimizer.RMSProp",
            {**_RATE, "alpha": Argument("rho"), **_EPS, **_MOMENTUM, "centered": Argument("centered"), **_DECAY},
        ),
        "adagrad": Constructor("paddle.optimizer.Adagrad", {**_RATE, **_EPS, **_DECAY}),
    }

    def __init__(self) -> None:
        self.model: Arrays | None = None
        self.names: dict[str, str] = {}
        self.fields: dict[str, dict[str, Array]] = {}

    def made(self, name: str) -> Callable[..., Any]:
        from paddle import optimizer

        found: Callable[..., Any] = getattr(optimizer, self.constructors[name].path.rpartition(".")[2])
        return found

    def call(self, o: Optimizer) -> str:
        if o.name == "sgd" and not o.momentum:
            return Constructor("paddle.optimizer.SGD", {**_RATE, **_DECAY}).says(o)
        return super().call(o)

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, model: Any) -> Opened:
        stored = _dictionary(path)
        whole, own = entry(stored, (*OPTIMIZER, "opt"))
        if isinstance(whole, dict):
            held, of_model = entry(stored, MODEL)
            told, left = entry(stored, STEPS)[0], [n for n in stored if n not in (own, of_model, NAMES, *STEPS)]
        else:
            whole, held, told, left = stored, None, None, []
        apart = path.with_suffix(weights.SUFFIX) if self.apart is None else self.apart
        if self.apart is not None or (held is None and apart.is_file() and apart != path):
            with readable(apart):
                self._take_weights(_dictionary(apart), apart)
        elif isinstance(held, dict):
            self._take_weights(held, path)
        settings = self._take_state(whole)
        left += [name for name in (SCHEDULE, MASTERS) if name in whole]
        counted = self._steps()
        steps = told if counted is None and isinstance(told, int) else counted
        return Opened(settings, (), steps, self.model is not None, tuple(map(str, left)), ADAMS)

    def _take_weights(self, stored: Mapping[Any, Any], path: Path) -> None:
        """Take the state_dict of a model. A nested one has the name of each parameter in place of ``NAMES``."""
        named = {name: value for name, value in stored.items() if name != NAMES}
        self.model = pickles.arrays_of({name: _array(value) for name, value in named.items()}, path, Room(path))
        told = stored.get(NAMES)
        names = told if isinstance(told, dict) else {name: value[0] for name, value in named.items() if _is_pair(value)}
        self.names = {str(name): str(parameter) for name, parameter in names.items()}

    def _take_state(self, stored: Mapping[Any, Any]) -> Settings:
        """Take the state_dict of an optimizer. Returns what it says about the settings."""
        for key, value in stored.items():
            if key in (NAMES, SCHEDULE, MASTERS):
                continue
            match, array = KEY.fullmatch(str(key)), _array(value)
            if match is None or not isinstance(array, np.ndarray):
                raise WeightsError(
                    f"{self.path}: it is no state of an optimizer that is converted: it has {str(key)[:80]}; converted are "
                    f"{', '.join(self.constructors)}"
                )
            self.fields.setdefault(match[2], {})[match[1]] = array
        name = KNOWN.get(frozenset(self.fields))
        if name is None:
            raise WeightsError(
                f"{self.path}: it is the state of an optimizer that is not converted: it has {', '.join(sorted(self.fields))} of "
                f"each parameter; converted are {', '.join(self.constructors)}"
            )
        settings: Settings = {"name": name} if name else {"amsgrad": "moment2_max" in self.fields}
        if not self.fields:
            settings |= {"momentum": 0.0, "nesterov": False}
        if name == "rmsprop":
            settings["centered"] = any(bool(each.any()) for each in self.fields["mean_grad"].values())
        schedule = stored.get(SCHEDULE)
        if isinstance(schedule, dict) and "last_lr" in schedule:
            settings["lr"] = float(schedule["last_lr"])
        return settings

    def _steps(self) -> int | None:
        """The number of steps, which the powers of Adam's betas tell; None where they do not."""
        held = [self.fields.get(key, {}) for key in POWERS]
        counts = {name: self._count(name) for name in held[0] if name in held[1]}
        known = {name: float(count) for name, count in counts.items() if count is not None}
        return one_count(self.path, known)

    def _count(self, name: str) -> int | None:
        """The number of steps of a parameter. Paddle keeps the powers for the step that follows."""
        betas = [float(np.float32(self.given.get(beta, own))) for beta, own in POWERS.values()]
        powers = [float(self.fields[key][name].reshape(-1)[0]) for key in POWERS]
        possible = all(0 <= power < 1 for power in powers)
        logs = [
            (math.log(power), math.log(b))
            for power, b in zip(powers, betas)
            if possible and power >= TINY and 0 < b < 1
        ]
        exponent = round(logs[0][0] / logs[0][1]) if logs else 1
        if not possible or exponent < 1 or any(abs(p - exponent * b) > (exponent + 1) * ROUNDED for p, b in logs):
            shown = " and ".join(f"{key} {power:.6g}" for key, power in zip(POWERS, powers))
            raise WeightsError(
                f"{self.path}: {name} has {shown}, which are not the powers of {betas[0]:.6g} and {betas[1]:.6g} after one number "
                "of steps: give the betas of the training with --set beta1=X beta2=Y"
            )
        return exponent - 1 if logs else None

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def load(self, model: Any, learner: Any, steps: int) -> None:
        _check_groups(learner)
        stored = model.state_dict()
        if self.model is not None:
            for name, tensor in stored.items():
                if name not in self.model:
                    raise WeightsError(f"{self.path}: its weights have no {name}, which the model has")
                self._set(name, tensor, self.model[name])
        trained = [part for part in model.parameters() if not part.stop_gradient]
        called = {id(tensor): name for name, tensor in reversed(stored.items())}
        keys = sorted(learner.optim._accumulators)
        if keys != sorted(self.fields):
            held, kept = (", ".join(sorted(each)) or "nothing" for each in (self.fields, keys))
            raise WeightsError(
                f"{self.path}: it holds {held} of each parameter, and {learner.optimizer.name} with these settings keeps {kept}: "
                "give the settings of the training with --set"
            )
        fields = Fields(self.path)
        for part, name in zip(trained, self._in_file(trained, called)):
            of_name = {key: self.fields[key][name] for key in keys if name in self.fields[key]}
            if of_name or not keys:
                fields.found[called[id(part)]] = of_name
        moments = [key for key in keys if key not in POWERS]
        fields.check({called[id(part)]: tuple(part.shape) for part in trained}, moments)
        for part in trained:
            name = called[id(part)]
            for key, array in fields.found[name].items():
                self._set(f"{key} of {name}", learner.optim._get_accumulator(key, part), array)
        learner.steps = steps

    def _in_file(self, trained: list[Any], called: Mapping[int, str]) -> list[str]:
        """The name that each parameter has in the state: as the file of the weights tells it, as in the model, or by the order."""
        held = list(dict.fromkeys(name for of_name in self.fields.values() for name in of_name))
        told = [self.names.get(called[id(part)], part.name) for part in trained]
        if set(held) <= set(told):
            return told
        if len(held) != len(trained):
            raise WeightsError(
                f"{self.path}: its optimizer has {len(held)} parameters, and the model {len(trained)}: it is the state of another "
                "model"
            )
        return held

    def _set(self, what: str, tensor: Any, array: Array) -> None:
        """Set a tensor. Raises WeightsError for an array of another shape, or of another kind of numbers."""
        if array.shape != tuple(tensor.shape):
            raise WeightsError(
                f"{self.path}: {what} has the shape {array.shape}, and should have {tuple(tensor.shape)}: it is of another model"
            )
        own = str(tensor.dtype).rpartition(".")[2]
        if own == "float32" and array.dtype.kind != "f":
            raise WeightsError(
                f"{self.path}: {what} is {array.dtype}, and should be float32 (Paddle writes bfloat16 as uint16)"
            )
        tensor.set_value(array.astype(own, copy=False))

    def save(self, path: Path, model: Any, learner: Any) -> None:
        """Write both files. The numbers at the ends of the names are those of the first optimizer of a process."""
        import paddle

        _check_groups(learner)
        state = {
            f"{name}_{key}_0": tensor
            for key, of_name in learner.optim._accumulators.items()
            for name, tensor in of_name.items()
        }
        paddle.save(state, str(path))
        paddle.save(model.state_dict(), str(path.with_suffix(weights.SUFFIX)))


def _dictionary(path: Path) -> dict[Any, Any]:
    """The dictionary that a file holds."""
    stored = pickles.load_stored(path)
    if not isinstance(stored, dict):
        raise WeightsError(f"{path}: holds a {type(stored).__name__}, not a state_dict")
    return stored


def _is_pair(value: Any) -> bool:
    """Whether this is a tensor of a nested dictionary: a list of its name and its array."""
    return isinstance(value, list) and len(value) == 2


def _array(value: Any) -> Any:
    """The array of a tensor."""
    return value[1] if _is_pair(value) else value


def _check_groups(learner: Any) -> None:
    """Raise Unsupported for several groups of parameters, which the file does not tell."""
    if learner.recipe.groups:
        raise Unsupported("the parameters have several learning rates or weight decays, and one group is converted")
