"""The interface of a file format.

A format is one file, ``xverify/formats/NAME.py``, and is found by its name (see ``formats``). It defines a class ``Adapter``, a
subclass of ``ModelFile``. The parent process calls class methods only: they read bytes, and they never import a framework or run
anything that a file holds. A worker process makes an instance, which opens the file and computes.

A model file is a subject like any other: ``build`` opens the file that ``Source.folder`` names, and ``modes`` makes it callable.
A callable takes native inputs in the order of the signature, and returns its outputs as a mapping from the signature's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ..errors import Failed, SubjectError, Unsupported, XverifyError, first_line, with_article
from ..results.precision import Precision
from ..weights.stored import Stored, norms_by_name
from .filenodes import Traced
from .runner import Array, Runner, Source
from .structures import Natives as Natives

# Names of floating-point dtypes that numpy lacks. Arrays of them travel as float32, which holds each of their values exactly.
NARROW = frozenset({"bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"})
FLOATS = NARROW | {"float16", "float32", "float64"}
# Weights by name -> those to compute with in their place.
Change = Callable[[Mapping[str, Array]], Mapping[str, Array]]
# The least and the greatest number of the dtypes of whole numbers; numpy lacks those of four bits.
LIMITS = {
    **{
        name: (int(np.iinfo(name).min), int(np.iinfo(name).max))
        for bits in (8, 16, 32, 64)
        for name in (f"int{bits}", f"uint{bits}")
    },
    "int4": (-8, 7),
    "uint4": (0, 15),
}
LONGEST = 400  # characters of a cause that a message quotes


@dataclass(frozen=True)
class Tensor:
    """One input or output of a model file.

    name: its name; names of inputs are unique, and so are names of outputs.
    shape: the size of each dimension, the name of a dynamic dimension, or None for a dynamic dimension without a name. The whole
        shape is None when the file does not say even the number of dimensions.
    dtype: as numpy writes it, for example "float32", "bfloat16", "int64", "bool" or "string".
    quantised: whether its whole numbers stand for real ones, and the option ``real`` of ``build`` makes it take and return these.
    """

    name: str
    shape: tuple[int | str | None, ...] | None
    dtype: str
    quantised: bool = False


@dataclass(frozen=True)
class Signature:
    """What a model file takes and returns.

    inputs, outputs: in the order of the file. No outputs: the format does not say them, and a call shows them.
    name: which of the file's signatures it is; "" when the format has no named signatures.
    others: names of the other signatures that the file has; the option ``signature`` of ``build`` chooses one.
    notes: what else the file tells, such as what computes it; a sentence each, for the report.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    name: str = ""
    others: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def as_float64(self) -> Signature:
        """The signature of the same model in float64."""

        def widen(tensor: Tensor) -> Tensor:
            return replace(tensor, dtype="float64") if tensor.dtype in FLOATS else tensor

        return replace(self, inputs=tuple(map(widen, self.inputs)), outputs=tuple(map(widen, self.outputs)))


class ModelFile(Runner):
    """The base class of every format.

    A format defines ``name``, ``title``, ``runtime``, ``needs``, ``modes``, ``__init__``, ``recognises``, ``open``, ``signature``,
    ``to_native``, ``to_numpy``, ``wait`` and ``environment``. ``describe_risk`` and ``check`` are for formats that need them.
    """

    # What messages call a file of this format, for example "ONNX file".
    title: ClassVar[str]
    # The program that runs the file; ``--on`` names it.
    runtime: ClassVar[str]
    # Whether this runtime runs the file only where ``--on`` names it.
    on_request: ClassVar[bool] = False
    # Whether ``xverify convert`` makes other files of it.
    converts: ClassVar[bool] = False
    # Whether it may write the graph of a file as ONNX, see ``write_onnx``.
    writes_onnx: ClassVar[bool] = False
    # Whether the channels of the images in such a graph are their last axis.
    channels_last: bool = False
    # Whether its framework often makes int32 of int64, and float32 of float64.
    shortens: bool = False
    # Name of each input of the file that is open -> its dtype.
    dtypes: Mapping[str, str] = {}

    # -- class methods: the parent process calls them, and they import no framework ------------------------------------

    @classmethod
    def recognises(cls, path: Path) -> bool:
        """Whether a file or folder has this format. It is told by its content and never by its name alone."""
        raise NotImplementedError

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        """Why opening or calling this file can run code that it holds, as a clause; '' when it cannot.

        The file is read, and not opened with its framework.
        """
        return ""

    @classmethod
    def check(cls, path: Path) -> None:
        """Raise UsageError for a file that is visibly damaged, or that refers to files outside of its own folder."""

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        """The other files that belong to this file. It may raise UsageError for a damaged file."""
        return ()

    # -- in the worker -------------------------------------------------------------------------------------------------

    def build(self, source: Source, options: Mapping[str, Any], float64: bool = False) -> Any:
        """Open the file ``source.folder``.

        options: "trust": allow code in the file to run; "signature": the name of a signature of the file; "real": take and return
            real numbers where the file has quantised ones; others as the format describes them.
        Raises Failed, with one line, for a file that cannot be opened, and Unsupported for one that this runtime cannot run.
        """
        path = source.folder
        risk = "" if options.get("trust") else self.describe_risk(path)
        if risk:
            raise Failed(refusal(path, risk))
        self.check(path)
        try:
            model = self.open(path, options, float64)
            signature = self.signature(model)
        except MemoryError:
            raise Failed(f"{path.name}: there is not enough memory to open this {self.title}") from None
        except SubjectError as error:
            raise type(error)(self._about(path, str(error))) from None
        except XverifyError:
            raise
        except Exception as error:
            raise self._explain(path, error) from error
        if not float64:
            self.dtypes = {tensor.name: tensor.dtype for tensor in signature.inputs}
        return model

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Any:
        """Open a file. It may raise any exception; ``build`` makes one line of it. float64: as in ``build``."""
        raise NotImplementedError

    def signature(self, model: Any) -> Signature:
        """The inputs and outputs of an opened file. For a float64 model their dtype is float64."""
        raise NotImplementedError

    def precision(self, model: Any) -> Precision:
        """The precision of the weights of an opened file and of its arithmetic; "unknown" where the format cannot tell."""
        return Precision()

    def forward(self, model: Any) -> Callable[..., Any]:
        """An opened file as a function of native tensors in the order of the signature, which a converter can trace.

        A format that ``converts`` has it. Raises Unsupported for a file that cannot be traced.
        """
        raise NotImplementedError

    def random_operators(self, model: Any) -> list[str]:
        """The operators of an opened file that draw random numbers, each with its place; [] where the format shows none."""
        return []

    def node_values(
        self, model: Any, inputs: Mapping[str, Any], folder: Path, graph: Path | None = None
    ) -> dict[str, str]:
        """Compute one case node by node, and write the value of every node: name of a value -> file name in the folder.

        inputs: name -> native input. graph: a file to compute in the place of the model.
        Raises Unsupported when the runtime does not show the values of nodes.
        """
        raise Unsupported(f"{self.runtime} does not show the values of nodes")

    def write_onnx(self, model: Any, inputs: Mapping[str, Any], path: Path) -> dict[str, str]:
        """Write the graph as an ONNX file of the same meaning: name of a node -> its operator in the file.

        Its inputs and outputs are those of the signature, and its values those of ``node_values``. An operator that ONNX cannot
        express is a node of a domain that nobody implements. inputs: name -> native input, which fixes the shapes.
        Raises Unsupported for a file of which there is no such graph.
        """
        raise Unsupported(f"there is no graph of {with_article(self.title)} in ONNX")

    def traced(self, model: Any, inputs: Mapping[str, Any]) -> Traced:
        """The nodes of the file, and their values in one case. inputs: name -> native input.

        Raises Unsupported when the runtime does not show them.
        """
        raise Unsupported(f"{self.runtime} does not show the values of nodes")

    def rounded_operations(self, seed: int) -> AbstractContextManager[Any]:
        """A context in which every operation of a float64 model is perturbed as rounding to float32 would.

        A runtime without access to its operations perturbs nothing.
        """
        return nullcontext()

    def with_weights(self, model: Any, change: Change, folder: Path) -> Any:
        """The opened model with other float32 weights; None when it has none that can be changed. ``model`` itself may be changed.

        change: the weights by name -> those to compute with. folder: for files that this takes.
        """
        return None

    def stored(self, model: Any) -> Stored:
        """The weights that an opened file stores. Raises Unsupported when the runtime does not show them."""
        raise Unsupported(f"{self.runtime} does not show the weights of {with_article(self.title)}")

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        """The kind of an exception that the runtime raised, and its cause in one line."""
        return Failed, first_line(error)

    def load_weights(self, model: Any, arrays: dict[str, Array]) -> None:
        """The weights of a model file are its own."""

    def save_weights(self, model: Any) -> dict[str, Array]:
        return {}

    def to_input(self, name: str, array: Array, layout: str | None) -> Any:
        """Convert an array to the dtype of an input. An array of a dtype that numpy lacks is given as float32."""
        dtype = self.dtypes.get(name, "")
        if dtype in ("", array.dtype.name):
            return self.to_native(array, layout)
        if dtype == "string":
            if array.dtype.kind not in "OSU":
                raise Unsupported(f"input {name!r} takes strings, and the array that was given is {array.dtype}")
            return self.to_native(array.astype(object), layout)
        wanted = np.float32 if dtype in NARROW else np.dtype("int8" if dtype in ("int4", "uint4") else dtype)
        if not np.can_cast(array.dtype, wanted, "same_kind"):
            raise Failed(f"input {name!r} takes {dtype}, and the array that was given is {array.dtype}")
        problem = misfit(array, dtype)
        if problem:
            raise Failed(f"input {name!r}: {problem}")
        return self.narrow(array.astype(wanted), dtype)

    def narrow(self, array: Array, dtype: str) -> Any:
        """Convert an array to a native tensor of a dtype. dtype: the array's own one, or one that numpy lacks."""
        if dtype != array.dtype.name:
            raise Unsupported(f"{self.runtime} is not given inputs of dtype {dtype}")
        return self.to_native(array, None)

    def _explain(self, path: Path, error: Exception) -> SubjectError:
        kind, text = self.cause(error)
        return kind(self._about(path, text))

    def _about(self, path: Path, cause: str) -> str:
        """One line that says which file cannot be opened, its format, and why."""
        line = " ".join(cause.replace(str(path), path.name).split())
        line = line if len(line) <= LONGEST else line[:LONGEST] + " ..."
        return f"{path.name}: {self.runtime} cannot open this {self.title}: {line}"


def misfit(array: Array, dtype: str) -> str:
    """Why an input of whole numbers cannot take those of an array, as a phrase; "" where it can.

    dtype: of the input, as in ``Tensor``; "" for one that is not known.
    """
    if not array.size or array.dtype.kind not in "iu" or dtype not in LIMITS:
        return ""
    low, high = LIMITS[dtype]
    found = next((value for value in (int(array.min()), int(array.max())) if not low <= value <= high), None)
    return (
        f"it takes {dtype}, which has the numbers {low} to {high}, and {found} was given" if found is not None else ""
    )


def change_weights(arrays: Mapping[str, Array], change: Change, assign: Callable[[str, Array], object]) -> bool:
    """Change the float32 arrays among these weights; False when there are none. assign: sets the weight of a name."""
    weights = {name: array for name, array in arrays.items() if array.dtype == np.float32}
    for name, array in change(weights).items():
        assign(name, array)
    return bool(weights)


def by_name(arrays: Mapping[str, Array]) -> Stored:
    """The weights of a file without a graph that tells their batch norms: their names tell them."""
    return Stored(arrays, norms_by_name(arrays))


def refusal(path: Path, risk: str) -> str:
    """The message about a file that is not opened because it could run code. risk: see ``ModelFile.describe_risk``."""
    return f"{path.name} is not opened, because {risk}. If you trust its author, say so with --trust"


def numpy_name(dtype: str) -> str:
    """The name of a dtype that a framework writes as "torch.float32"."""
    return dtype.rpartition(".")[2]
