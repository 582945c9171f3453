"""The interface of a target format of ``xverify convert``, and the discovery of all targets.

A target is one file, ``xverify/converters/NAME.py``, and is found by its name. The folders in the environment variable
XVERIFY_CONVERTERS (separated as in PATH) are searched as well, and a file found there replaces one of the same name. It defines a
class ``Adapter``, a subclass of ``Converter``.

A conversion has one or several steps, each in a worker of one framework: for example, torch exports ONNX, and ONNX Runtime
quantises it. The parent process asks for the steps; it never imports a framework. Every step is a call of the framework's own
converter.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from .. import converters
from ..errors import NotInstalled, UsageError, nearest
from . import discovery
from .adapter import Array

FLOAT16, INT8 = "float16", "int8"
QUANTIZATIONS = (INT8, FLOAT16)
DYNAMO, TORCHSCRIPT = "dynamo", "torchscript"
EXPORTERS = (TORCHSCRIPT, DYNAMO)


@dataclass(frozen=True)
class Step:
    """One step of a conversion.

    framework: the framework whose worker does it. method: the method of the target's class that does it.
    builds: whether it converts the model of the folder, or of the file that was opened; otherwise it converts the file of the step
        before.
    file: the name of what it writes where another step follows.
    module: a package that it needs beside the framework; "" for none.
    """

    framework: str
    method: str
    builds: bool = True
    file: str = "model.onnx"
    module: str = ""


@dataclass(frozen=True)
class Layer:
    """A part of a file that can have a precision of its own.

    name: of its first node that computes with weights, or that is delicate otherwise. kind: the operator of this node.
    nodes: the names of all nodes of the layer.
    """

    name: str
    kind: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Job:
    """What a step of a conversion is given, in the worker.

    framework: the adapter of the worker's framework, or the format of the file that it has opened.
    model: the built model with its weights, or the file that was opened; None when the step converts a file.
    inputs, outputs: the names of the spec, in its order.
    arrays: the input cases, "case/name" -> array in canonical layout.
    native: the same for each case as the framework's own tensors; empty when the step converts a file.
    source: the file of the step before; None in a first step. path: where the result is written.
    quantize: "float16", "int8" or None. exporter: which exporter of torch makes ONNX.
    traces: whether the model may be traced, because its control flow does not depend on its input.
    keep: the names of layers that stay in float32, of those that ``Converter.layers`` tells.
    """

    framework: Any  # the adapters of different frameworks have no common attributes
    model: Any
    inputs: Sequence[str]
    outputs: Sequence[str]
    arrays: Mapping[str, Array]
    native: Sequence[tuple[Any, ...]]
    source: Path | None
    path: Path
    quantize: str | None
    exporter: str
    traces: bool
    keep: Sequence[str] = ()

    def cases(self) -> Iterator[dict[str, Array]]:
        """The input cases, one after another: name -> array in canonical layout."""
        for case in range(len(self.arrays) // len(self.inputs)):
            yield {name: self.arrays[f"{case}/{name}"] for name in self.inputs}


class Converter:
    """The base class of every target.

    A target defines ``name``, ``title``, ``suffixes``, ``steps``, and one method for each step: it takes a Job, writes its file,
    and returns a phrase that says which converter did it, with its version and settings.
    """

    # The name that ``--to`` takes, equal to the name of the file without ``.py``.
    name: ClassVar[str]
    # What messages call a file of this format.
    title: ClassVar[str]
    # The usual suffixes of its files, from which the target is told where ``--to`` is omitted.
    suffixes: ClassVar[tuple[str, ...]] = ()
    # Whether a file must have one of these suffixes.
    strict_suffix: ClassVar[bool] = False
    # Whether the result is a folder.
    folder: ClassVar[bool] = False
    # "float16" or "int8" -> why this conversion is not supported, and what to do instead.
    unsupported: ClassVar[Mapping[str, str]] = {}
    # Whether layers can stay in float32 where the others get a lower precision; then it defines ``layers``.
    mixes: ClassVar[bool] = False

    @classmethod
    def steps(cls, quantize: str | None) -> tuple[Step, ...]:
        """The steps of a conversion, in order."""
        raise NotImplementedError

    @classmethod
    def steps_of_file(cls, runtime: str, quantize: str | None) -> tuple[Step, ...]:
        """The steps of a conversion of a file, in order; () where there is none.

        A step that builds is done by the worker that has opened the file. runtime: what runs the file, such as "tensorflow".
        """
        steps = cls.steps(quantize)
        return steps if steps[0].framework == runtime else ()

    @classmethod
    def parts(cls, path: Path) -> tuple[Path, ...]:
        """The files that belong to a file of this format, the file itself first."""
        return (path,)

    @classmethod
    def layers(cls, source: Path, quantize: str) -> tuple[Layer, ...]:
        """The layers of the float32 file before the last step, each of which can stay in float32. It is called in the worker."""
        raise NotImplementedError


def files() -> dict[str, Path]:
    """Target name -> its file."""
    return discovery.modules("XVERIFY_CONVERTERS", converters.__path__[0])


def load(name: str) -> type[Converter]:
    """The class of a target. No framework is imported. Raises UsageError for an unknown name."""
    known = files()
    if name not in known:
        raise UsageError(f"--to {name}: unknown format{nearest(name, known)} Known: {', '.join(known)}")
    found = cast(Any, discovery.load_file(converters.__name__, name, known[name]))
    return cast(type[Converter], found)


def load_all() -> dict[str, type[Converter]]:
    """Target name -> class, for every target."""
    return {name: load(name) for name in files()}


def need(module: str, purpose: str) -> None:
    """Raise NotInstalled unless a package can be imported. purpose: what needs it, as a noun phrase."""
    if importlib.util.find_spec(module) is None:
        raise NotInstalled(f"{purpose} needs {module}, which is not installed: pip install {module}")
