"""The interface of a framework adapter.

An adapter is one file, ``xverify/frameworks/NAME/adapter.py``, and is found by its name. It defines a class ``Adapter``, a subclass
of ``Framework``, and imports its framework only inside ``__init__``. The parent process reads names and modes from the class; each
worker process makes one instance. An adapter runs a model and waits for its outputs. It never reads a clock and never judges.

``frameworks/numpy/adapter.py`` is the smallest complete adapter.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..errors import Failed, NoModel, Unsupported
from ..workload.code import BUILD, model_of
from ..workload.spec import ModelFolder
from .code_decoder import CodeDecoder
from .decoding import Decoder, Decodes
from .dropout import DropsOut
from .own_step import RunsOwnStep
from .ranks import RunsOnRanks
from .reference import IN_MEMORY as IN_MEMORY
from .reference import Activations as Activations
from .reference import Names as Names
from .reference import OpenAxes as OpenAxes
from .reference import Reference
from .runner import Array as Array
from .runner import Mode as Mode
from .runner import Source as Source
from .trains import Setup as Setup


class Framework(Reference, DropsOut, RunsOwnStep, RunsOnRanks, Decodes):
    """The base class of every adapter, with defaults for what most frameworks have in common.

    Every adapter defines ``name``, ``needs``, ``modes``, ``__init__`` and the required methods of ``runner.Runner``. All else is
    optional, and belongs to one of these:

    Reference: what the reference of a run does, such as exporting ONNX.
    ShowsLayers: shows the inputs and outputs of layers.
    Trains: training, and gradients within a model.
    DropsOut: takes dropout out of training, or gives it masks.
    RunsOwnStep: runs a ``train_step`` of the model file.
    RunsOnRanks: trains one model in several processes.
    Decodes: calls a model with the cache of its earlier calls.
    """

    # How weights reach the framework: "onnx" (from the reference's ONNX export, when there is one) or "canonical" (directly).
    weights_route: ClassVar[str] = "canonical"
    # The module of xverify/weights that has ``to_model`` and ``from_model``; None: the adapter moves weights itself.
    weights_module: Any = None
    # Whether the adapter runs the reference's ONNX export instead of a model file of the folder.
    runs_export: ClassVar[bool] = False
    # Whether the layers are judged in every input case, also where the outputs do not ask for it: nothing has to run.
    shows_every_case: ClassVar[bool] = False

    @classmethod
    def has_own_weights(cls) -> bool:
        """Whether the file that a subject names has weights under names of its own, which are not compared with the reference's."""
        return cls.runs_export and cls.path is not None

    @classmethod
    def refuses(cls, folder: ModelFolder, mode: str) -> str:
        """Why this mode cannot run this model, according to its spec and files; '' when it can. It imports no framework."""
        if cls.runs_export:
            return "" if cls.path else folder.spec.no_export
        absent = [option for option in cls.mode_options.get(mode, {}) if not folder.takes(cls.reads(), option)]
        return f"the model is written in one way only: its build takes no {', '.join(absent)}" if absent else ""

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        if float64:
            raise Unsupported(f"{self.name} cannot build a model in float64")
        return self.define(source, options)

    def define(self, source: Source, options: Mapping[str, Any]) -> Any:
        """Call ``build(**options)`` of the model file, or what a subject names there.

        Raises Failed when the file lacks it, and NoModel when it returns something else than a model.
        """
        module = source.load()
        if source.project:
            made = model_of(module, source.title, source.function, options)
        elif callable(getattr(module, BUILD, None)):
            made = module.build(**options)
        else:
            raise Failed(f"{source.folder / source.title} defines no build(**options)")
        if not self.is_model(made):
            raise self.no_model(source, made)
        return made

    def is_model(self, made: Any) -> bool:
        """Whether a value that a model file returns can be a model."""
        return not isinstance(made, type) and (type(made).__module__ != "builtins" or callable(made))

    def no_model(self, source: Source, made: Any) -> NoModel:
        """The error for a value of the model file that is no model."""
        place, kind = f"{source.folder / source.title}: {source.function} returns", type(made)
        if made is None:
            return NoModel(f"{place} None: end it with a return of the model")
        if isinstance(made, type):
            return NoModel(f"{place} the class {made.__name__}: return an object of it, {made.__name__}(…)")
        if isinstance(made, tuple | list):
            kinds = ", ".join(type(each).__name__ for each in made[:4]) + ", …" * (len(made) > 4)
            return NoModel(f"{place} a {kind.__name__} ({kinds}): return the model alone")
        where = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        return NoModel(f"{place} a value of type {where}{kind.__name__}, which is no model of {self.name}")

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        self.weights_module.to_model(model, arrays)

    def save_weights(self, model: Any) -> dict[str, Array]:
        arrays: dict[str, Array] = self.weights_module.from_model(model)
        return arrays

    def fused_parameters(self, model: Any) -> dict[str, tuple[str, ...]]:
        """Weights that the framework stores as one tensor where torch has several: name -> names of the tensors whose sum it is."""
        return {}

    def decoder(self, model: Any, inputs: Mapping[str, str | None], output: str) -> Decoder:
        return CodeDecoder(self, model, inputs, output) if self.decodes else super().decoder(model, inputs, output)

    def advice_on_axes(self, model: Any, name: str, shape: tuple[int, ...]) -> str:
        """What the user can declare so that a weight gets this shape, as a clause; "" when nothing helps.

        name: native name of the weight. shape: that of the reference.
        """
        return ""
