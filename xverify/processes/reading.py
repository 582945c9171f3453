"""Reads and writes weight files in a process of their own: a damaged or hostile file can end that process and no other."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import psutil

from .. import reading, weights
from ..errors import NO_SPACE, NotWritten, SubjectError, WeightsError
from ..framework import discovery, formats
from ..messages.weights import ReadFile, ReadGraph, ReadQuantised, WriteFile
from ..weights import npz, sharded
from ..weights import torch as torch_weights
from ..weights.canonical import Changed
from ..weights.room import GB, Room
from ..weights.stored import STEPS, Stored, norms_by_name
from .command import interpreter
from .space import temporary_folder
from .worker import Worker

TIMEOUT = 600.0  # seconds that reading or writing one file may take
COPIES = 4  # of all arrays of a file that its reader holds at once, at most
OWN = 2.0  # GB that a reader takes without any array, with torch


def convert_weights(path: Path, target: Path, trust: bool = False, most: float | None = None) -> npz.OnDisk:
    """Write the canonical arrays of a weight file to an array file, and return them as they are on disk. Raises UsageError.

    trust, most: see ``weights.load_file``.
    """
    check(path)
    with _reader(path, most) as worker:
        # Links stay in the path, because shards are looked for beside their index.
        reply = worker.ask(ReadFile(str(path.absolute()), str(target.absolute()), trust, most))
        if reply.refused:
            raise WeightsError(reply.refused.replace(str(path.absolute()), str(path)))
        return npz.OnDisk(target)


def check(path: Path) -> None:
    """Raise WeightsError unless this is a regular file or a folder, or an index, which is looked at where it is read.

    Raises UsageError for an ONNX file that is damaged, or whose external data cannot be read.
    """
    wrong = "" if sharded.is_sharded(path) else reading.problem(path)
    if wrong:
        raise WeightsError(f"{path}: {wrong.replace(reading.ABSENT, 'no such weight file')}")
    if path.suffix == ".onnx":
        formats.examine(path)


def read_graph(path: Path, target: Path, most: float | None = None) -> Stored:
    """The weights of an ONNX file, with its batch norms; ``target`` is a new file for the arrays. Raises WeightsError."""
    with _reader(path, most) as worker:
        reply = worker.ask(ReadGraph(str(path.resolve()), str(target.absolute()), most))
        return Stored(npz.OnDisk(target), reply.norms, reply.quantised, reply.places)


def read_quantised(path: Path, target: Path, most: float | None = None) -> Stored:
    """The weights of a file of GGUF, or of .safetensors files, with the steps of the quantised ones. Raises WeightsError.

    target: a new file for the arrays. most: see ``weights.load_file``.
    """
    check(path)
    with _reader(path, most) as worker:
        reply = worker.ask(ReadQuantised(str(path.absolute()), str(target.absolute()), most))
        if reply.refused:
            raise WeightsError(reply.refused.replace(str(path.absolute()), str(path)))
        arrays = npz.OnDisk(target)
        steps = {name: STEPS + name for name in reply.stepped}
        own = Changed(arrays, {name: name for name in arrays if name.removeprefix(STEPS) not in steps or name in steps})
        read = Stored(own, norms_by_name(own), reply.quantised)
        return replace(read, steps=Changed(arrays, steps), facts=reply.facts, unread=reply.unread)


def write_weights(source: Path, path: Path, target: Path | None = None) -> None:
    """Write the canonical arrays of an array file in the format of the path's suffix, as ``weights.save_file`` does.

    target: the file that this one will replace; the graph of an .onnx file is that of its target.
    Raises WeightsError, and NotWritten where the disk is full or the system refuses.
    """
    template = str(target.absolute()) if target is not None and target.is_file() else ""
    named = target or path
    with _reader(path, source.stat().st_size / GB + OWN) as worker:
        reply = worker.ask(WriteFile(str(source.absolute()), str(path.absolute()), template))
        if reply.disk:
            raise NotWritten(f"{named} cannot be written: {reply.disk}")
        if reply.refused:
            raise WeightsError(
                reply.refused.replace(str(path.absolute()), str(named)).replace(template or "\0", str(named))
            )


@contextmanager
def _reader(path: Path, most: float | None) -> Iterator[Worker]:
    """A worker for one weight file, whose memory is limited. Its failures become WeightsError, with the path."""
    files = sharded.files(path) if weights.known_format(path) is sharded and path.exists() else ()
    adapter = discovery.load("torch" if path.suffix in torch_weights.SUFFIXES else "numpy")
    limit = min(COPIES * Room(path, most, files).most / GB + OWN, psutil.virtual_memory().total / GB)
    with temporary_folder() as space:
        try:
            with Worker(adapter, interpreter(adapter), space, 1, "cpu", TIMEOUT, patient=True, memory=limit) as worker:
                yield worker
        except SubjectError as error:
            if NO_SPACE in str(error):
                raise NotWritten(str(error)) from None
            says = str(error).replace(os.path.realpath(path), str(path)).replace(str(path.absolute()), str(path))
            raise WeightsError(says if says.startswith(str(path)) else f"{path}: {says}") from None
