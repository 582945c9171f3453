"""Requests to read and write weight files, which any worker can answer; see ``messages``."""

from __future__ import annotations

from dataclasses import dataclass, field

from .codec import Request
from .files import WeightsRead


@dataclass(frozen=True)
class FileDone:
    """refused: why the weight file cannot be read or written; None when it was.

    disk: what the system or a library of files says about a file that cannot be written.
    """

    refused: str | None = None
    disk: str | None = None


@dataclass(frozen=True)
class ReadFile(Request[FileDone]):
    """Convert a weight file to an array file.

    file: the weight file.
    path: the array file.
    trust: allow code in the weight file to run.
    most: the greatest size of its arrays; see ``weights.load_file``.
    """

    file: str
    path: str
    trust: bool
    most: float | None = None


@dataclass(frozen=True)
class WriteFile(Request[FileDone]):
    """Convert an array file of canonical weights to a weight file.

    path: the array file. file: the weight file. template: see ``weights.save_file``; "" for none.
    """

    path: str
    file: str
    template: str = ""


@dataclass(frozen=True)
class ReadGraph(Request[WeightsRead]):
    """Write the weights that an ONNX file stores to ``path``, under the names that the file has for them.

    file: the ONNX file. most: as in ``ReadFile``.
    """

    file: str
    path: str
    most: float | None = None


@dataclass(frozen=True)
class QuantisedRead:
    """The weights were written; the fields are those of ``weights.stored.Stored``.

    stepped: names of the arrays with steps; ``weights.stored.STEPS`` before such a name is that of the steps in the array file.
    refused: why the file cannot be read; None when it was.
    """

    quantised: dict[str, str] = field(default_factory=dict)
    stepped: tuple[str, ...] = ()
    facts: dict[str, str | int] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    refused: str | None = None


@dataclass(frozen=True)
class ReadQuantised(Request[QuantisedRead]):
    """Write the weights of a quantised language model, and the steps of its arrays, to ``path``.

    file: the weight file. most: as in ``ReadFile``.
    """

    file: str
    path: str
    most: float | None = None
