"""Files of Keras with optimizer state: ``model.save_weights("x.weights.h5")`` and ``model.save("x.keras")`` of a compiled model.

The variables of an optimizer are numbered: the number of steps, the learning rate, and then the state of the variables in the order
of ``model.trainable_variables``.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from xverify.errors import Unsupported, WeightsError, first_line
from xverify.framework.checkpoint import Argument, Checkpoint, Constructor, Opened, Settings

_RATE = {"lr": Argument("learning_rate")}
_DECAY = {"weight_decay": Argument("weight_decay", lambda value: value or None, lambda value: value or 0.0)}
_BETAS = {"beta1": Argument("beta_1"), "beta2": Argument("beta_2")}
_EPS = {"eps": Argument("epsilon")}
_ADAM = {**_RATE, **_BETAS, **_EPS, **_DECAY, "amsgrad": Argument("amsgrad")}
_ADAFACTOR = {
    **_RATE,
    "beta2_decay": Argument("beta_2_decay"),
    "eps": Argument("epsilon_1", lambda value: value**2, lambda value: value**0.5),
    "eps2": Argument("epsilon_2"),
    "threshold": Argument("clip_threshold"),
    **_DECAY,
}
_MOMENTUM = {"momentum": Argument("momentum")}
_RMSPROP = {**_RATE, "alpha": Argument("rho"), **_MOMENTUM, **_EPS, "centered": Argument("centered"), **_DECAY}
_SGD = {**_RATE, **_MOMENTUM, "nesterov": Argument("nesterov"), **_DECAY}
# The names that optimizers have in a file.
NAMES = {"sgd": "sgd", "adam": "adam", "adamw": "adamw", "rmsprop": "rmsprop", "rm_sprop": "rmsprop", "lion": "lion"}
NAMES |= {"adagrad": "adagrad", "adafactor": "adafactor"}
# Settings of an optimizer of Keras that change what it computes, and are not converted -> their values without effect.
PLAIN: dict[str, tuple[Any, ...]] = {
    "use_ema": (False,),
    "clipnorm": (None,),
    "clipvalue": (None,),
    "global_clipnorm": (None,),
    "gradient_accumulation_steps": (None, 1),
    "relative_step": (True,),
}


class KerasCheckpoint(Checkpoint):
    """A file of Keras. Its optimizer variables are loaded into an optimizer that is built as a user's is."""

    suffixes = (".weights.h5",)
    constructors = {
        "sgd": Constructor("keras.optimizers.SGD", _SGD),
        "adam": Constructor("keras.optimizers.Adam", _ADAM),
        "adamw": Constructor("keras.optimizers.AdamW", _ADAM),
        "rmsprop": Constructor("keras.optimizers.RMSprop", _RMSPROP),
        "adagrad": Constructor("keras.optimizers.Adagrad", {**_RATE, **_EPS, **_DECAY}),
        "lion": Constructor("keras.optimizers.Lion", {**_RATE, **_BETAS, **_DECAY}),
        "adafactor": Constructor("keras.optimizers.Adafactor", _ADAFACTOR),
    }

    def __init__(self) -> None:
        self.stored: dict[str, Any] = {}

    def made(self, name: str) -> Callable[..., Any]:
        from keras import optimizers

        found: Callable[..., Any] = getattr(optimizers, self.constructors[name].path.rpartition(".")[2])
        return found

    # -- reading ------------------------------------------------------------------------------------------------------

    def open(self, path: Path, model: Any) -> Opened:
        import h5py

        config = dict[str, Any]()
        try:
            content: Any = path
            if zipfile.is_zipfile(path):
                with zipfile.ZipFile(path) as archive:
                    content = io.BytesIO(archive.read("model.weights.h5"))
                    config = json.loads(archive.read("config.json")).get("compile_config", {}).get("optimizer", {})
            with h5py.File(content, "r") as file:
                variables = file.get("optimizer/vars")
                name = "" if variables is None else str(variables.attrs.get("name", ""))
                self.stored = {} if variables is None else {key: np.array(variables[key]) for key in variables}
        except Exception as error:  # of a damaged file, any
            raise WeightsError(f"{path}: not a readable file of Keras, or truncated ({first_line(error)})") from None
        if len(self.stored) < 2:
            raise WeightsError(
                f"{path}: it holds no optimizer state: compile the model with its optimizer before model.save_weights"
            )
        settings: Settings = {"lr": float(str(np.float32(self.stored["1"])))}  # 0.002, and not 0.0020000000949949026
        if config:
            settings |= self._configured(config)
        elif name in NAMES:
            settings["name"] = NAMES[name]
        return Opened(settings, steps=int(self.stored["0"]))

    def _configured(self, config: dict[str, Any]) -> Settings:
        """The settings in the configuration of an optimizer."""
        name, own = NAMES.get(str(config.get("class_name", "")).lower(), ""), config.get("config", {})
        if not name:
            raise WeightsError(
                f"{self.path}: it is the state of {config.get('class_name')}, which is not converted; converted are "
                f"{', '.join(self.constructors)}"
            )
        for option, plain in PLAIN.items():
            if option in own and own[option] not in plain:
                raise WeightsError(f"{self.path}: its optimizer has {option}={own[option]}, which is not converted")
        found: Settings = {"name": name}
        for field, argument in self.constructors[name].arguments.items():
            value = own.get(argument.own)
            if field != "lr" and (value is not None or field == "weight_decay"):
                found[field] = argument.from_own(value)
        return found

    # -- the optimizer ------------------------------------------------------------------------------------------------

    def load(self, model: Any, learner: Any, steps: int) -> None:
        ordered = self._in_the_models_order(model, learner)
        places = [(str(number), variable) for number, variable in enumerate(ordered.variables)]
        if len(self.stored) != len(places):
            raise WeightsError(
                f"{self.path}: its optimizer has {len(self.stored)} variables, and {learner.optimizer.name} of this model "
                f"{len(places)}: it is the state of another optimizer, or of another model"
            )
        for key, variable in places:
            own, wanted = self.stored[key].shape, tuple(variable.shape)
            if own != wanted:
                raise WeightsError(
                    f"{self.path}: optimizer/vars/{key} has the shape {own}, and {variable.path} of this model {wanted}: it is the "
                    "state of another optimizer, or of another model"
                )
        try:
            model.load_weights(self.path)
        except Exception as error:
            raise WeightsError(f"{self.path}: its weights do not fit the model: {first_line(error)}") from None
        ordered.load_own_variables(self.stored)
        learner.optim._iterations.assign(ordered._iterations)
        self._copy(learner, ordered, learner.optim)

    def save(self, path: Path, model: Any, learner: Any) -> None:
        ordered = self._in_the_models_order(model, learner)
        ordered._iterations.assign(learner.optim._iterations)
        self._copy(learner, learner.optim, ordered)
        model.compile(optimizer=ordered)
        named = path.with_name(path.name + self.suffixes[0])
        model.save_weights(named)
        named.replace(path)

    def _in_the_models_order(self, model: Any, learner: Any) -> Any:
        """An optimizer as that of the learner, built with the variables in the order of the model."""
        import keras

        if not isinstance(model, keras.Model):
            raise Unsupported(f"the model is a {type(model).__name__}: only a keras.Model is saved with its optimizer")
        known = {id(variable) for variable in learner.variables}
        ordered = type(learner.optim).from_config(learner.optim.get_config())
        ordered.build([variable for variable in model.trainable_variables if id(variable) in known])
        return ordered

    def _copy(self, learner: Any, source: Any, target: Any) -> None:
        """Copy the state of every variable from one optimizer to another."""
        names = learner.optimizer.keys(learner.STATE_NAMES)
        for variable in learner.variables:
            one, other = source._get_variable_index(variable), target._get_variable_index(variable)
            for name in names:
                getattr(target, name)[other].assign(getattr(source, name)[one])
