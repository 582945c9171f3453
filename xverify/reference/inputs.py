"""The input cases of a run: drawn from the seed, read from a data set, or those that an earlier run has kept."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Crashed, UsageError
from ..weights import npz
from ..weights.canonical import Array
from ..workload import datasets, probe
from ..workload.keys import case_key
from ..workload.ranks import shard_file

if TYPE_CHECKING:
    from .build import ReferenceProcess


def input_cases(process: ReferenceProcess, training: Path) -> tuple[dict[str, Array], str]:
    """The input cases, and their kind for the report. Those of training are also written with their labels."""
    request, spec = process.request, process.folder.spec
    if process.inputs is not None:
        return _given_inputs(process, process.inputs, training), f"those of {process.inputs.name}"
    if not request.trains:
        return probe.inputs(spec, request.batch, request.seed, request.cases), f"synthetic, seed {request.seed}"
    if request.data is None:
        batches = datasets.synthetic(spec, request.batch, request.seed, request.cases)
    else:
        process.phase(f"reading {request.data}")
        batches = datasets.read(Path(request.data), spec, request.batch, request.seed, request.cases)
    npz.save_file(batches.arrays, training)
    return {key: array for key, array in batches.arrays.items() if key.split("/", 1)[1] in spec.inputs}, batches.kind


def _given_inputs(process: ReferenceProcess, path: Path, training: Path) -> dict[str, Array]:
    """The input cases of a file; those of training are also written with their labels.

    Raises UsageError for a file that is damaged, or of another model.
    """
    request, spec = process.request, process.folder.spec
    try:
        arrays = npz.load_file(path)
    except Crashed:
        raise UsageError(f"{path} is no file of arrays, or it is damaged") from None
    inputs = {case_key(case, name): tensor for case in range(request.cases) for name, tensor in spec.inputs.items()}
    for key, tensor in inputs.items():
        array, size = arrays.get(key), tensor.sized(request.batch)
        if array is None or array.shape != size:
            has = "it is missing" if array is None else f"its shape is {array.shape}"
            raise UsageError(f"{path}: {key} of {process.folder.name} must have the shape {size}; {has}")
    if request.trains:
        npz.save_file(arrays, training)
    return {key: arrays[key] for key in inputs}


def fewer_items(process: ReferenceProcess, training: Path, items: int) -> Path:
    """A file of the first items of every training batch, with their labels."""
    if items >= process.request.batch:
        return training
    path = process.space / f"training-{items}-items.npz"
    npz.save_file(probe.first_items(npz.load_file(training), process.folder.spec, items), path)
    return path


def write_shards(process: ReferenceProcess, training: Path) -> None:
    """Write the part of every training batch that each rank has, with its labels, where a run divides batches."""
    ranks = process.request.divided
    for rank, part in enumerate(ranks.parts if ranks else ()):
        npz.save_file(probe.some_items(npz.load_file(training), process.folder.spec, part), shard_file(training, rank))
